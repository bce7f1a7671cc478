"""The imports page of an app: imported files, and figures of other tools."""

from typing import Final

from starlette.responses import Response

from mauve.dashboard.context import MemberContext, environment_of, environment_parameters, shown_project
from mauve.dashboard.rendering import page

IMPORTS_SHOWN: Final = 100
FIGURES_SHOWN: Final = 500


def show_imports(context: MemberContext) -> Response:
    app = context.app()
    project = shown_project(context, app)
    imports = context.parts.imports.latest([project], IMPORTS_SHOWN)
    figures = context.parts.imports.figures([project], FIGURES_SHOWN)
    return page(
        context,
        "imports.html",
        app=app,
        imports=imports,
        figures=figures,
        sources={each.number: each.format for each in imports},
        imports_shown=IMPORTS_SHOWN,
        figures_shown=FIGURES_SHOWN,
        environment=environment_of(context),
        environment_query=environment_parameters(context),
    )
