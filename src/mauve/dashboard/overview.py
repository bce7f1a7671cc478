"""What opens first. The numbers of all apps belong here; until they do, the list of apps is home."""

from mauve.dashboard.page import see_other
from mauve.dashboard.visit import MemberVisit
from mauve.web.messages import Reply


def show_overview(_visit: MemberVisit) -> Reply:
    return see_other("/apps")
