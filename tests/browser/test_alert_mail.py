"""The e-mail of a notice as a mail program shows it: narrow and wide, light and dark."""

from email.headerregistry import Address

import pytest
from axe_playwright_python.sync_playwright import Axe

from mauve.alerts.channels import Fact, Notice
from mauve.alerts.channels.mail import message_of

LONG = "A-name-without-any-space-that-goes-on-and-on-" * 3
NOTICE = Notice(
    id="ntc_1",
    kind="digest",
    title="Last week: revenue up 8 %",
    reason="You chose this digest on the alerts page.",
    facts=[
        Fact("Daisy Mail", "Revenue", "€4,211.50, $1,204.00, £88.00", "€3,900.00", "https://metrics.example.com/1"),
        Fact("Daisy Mail", LONG, LONG, LONG, None),
        Fact(LONG, "Signups", "311", None, None),
    ],
    link="https://metrics.example.com/",
    unsubscribe="https://metrics.example.com/unsubscribe/x",
    sent_for=LONG,
    at=1_789_000_000_000,
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [640, 360])
def test_an_email_is_readable_fits_and_loads_nothing(open_page, width, scheme):
    message = message_of(NOTICE, Address(addr_spec="a@example.com"), Address(addr_spec="b@example.com"))
    page = open_page("http://127.0.0.1", (width, 640), scheme)
    page.set_content(message.get_body(("html",)).get_content())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    report = Axe().run(page, options={"rules": {"landmark-one-main": {"enabled": False}, "region": {"enabled": False}}})
    assert "color-contrast" in {each["id"] for each in report.response["passes"]}
    assert [each["id"] for each in report.response["violations"]] == []
    labels = page.locator("td[width]").evaluate_all("cells => cells.map(cell => cell.offsetWidth)")
    assert min(labels) > width / 4  # A long value leaves room for its label.
