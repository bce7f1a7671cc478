"""The catalog on a SQL database."""

from mauve.stores.catalog import Catalog
from mauve.stores.sql.apps import SqlApps
from mauve.stores.sql.database import Database
from mauve.stores.sql.installation import SqlInstallation
from mauve.stores.sql.keys import SqlKeys
from mauve.stores.sql.links import SqlLinks
from mauve.stores.sql.organizations import SqlOrganizations
from mauve.stores.sql.passwords import SqlPasswords
from mauve.stores.sql.publications import SqlPublications
from mauve.stores.sql.sessions import SqlSessions
from mauve.stores.sql.tokens import SqlTokens
from mauve.stores.sql.users import SqlUsers
from mauve.stores.sql.webhook_secrets import SqlWebhookSecrets


def sql_catalog(database: Database) -> Catalog:
    return Catalog(
        organizations=SqlOrganizations(database),
        apps=SqlApps(database),
        keys=SqlKeys(database),
        tokens=SqlTokens(database),
        webhook_secrets=SqlWebhookSecrets(database),
        users=SqlUsers(database),
        passwords=SqlPasswords(database),
        links=SqlLinks(database),
        sessions=SqlSessions(database),
        publications=SqlPublications(database),
        installation=SqlInstallation(database),
    )
