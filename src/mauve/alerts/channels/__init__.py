"""Channels: send a notice by e-mail or to a webhook."""

import base64
import secrets
from collections.abc import Mapping

from mauve.alerts.channels import webhook
from mauve.alerts.channels.addresses import check_email, endpoint_from
from mauve.alerts.channels.sender import Sender, SendFailed, Target
from mauve.alerts.channels.smtp import SmtpSender, mail_sender_from, mail_server_from
from mauve.core.secret import Secret
from mauve.core.standard_webhooks import SECRET_PREFIX

__all__ = ["SendFailed", "Sender", "Target", "check_address", "new_secret", "senders"]


def senders(*, smtp_url: Secret | None, mail_from: str | None, allow_private: bool) -> Mapping[str, Sender]:
    """Return the sender of each kind of target. Without an SMTP URL there is none for "email".

    Raise ValueError, with a sentence for the operator, if the URL or the sender's address is not valid.
    """
    by_kind: dict[str, Sender] = dict.fromkeys(webhook.KINDS, webhook.WebhookSender(allow_private=allow_private))
    if smtp_url is not None:
        server = mail_server_from(smtp_url)
        by_kind["email"] = SmtpSender(server, mail_sender_from(mail_from, server))
    return by_kind


def check_address(kind: str, address: str, *, allow_private: bool) -> None:
    """Raise ValueError, with a sentence for the owner, if no message may be sent to the address.

    Names are not resolved: that may take long, and may give another answer when a message is sent. The sender checks
    the addresses of a name at every attempt.
    """
    if kind == "email":
        check_email(address)
    else:
        endpoint_from(address, allow_private=allow_private)


def new_secret() -> str:
    """Return a random signing secret as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
