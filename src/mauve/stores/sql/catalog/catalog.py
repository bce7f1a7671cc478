"""The catalog on a SQL database."""

from mauve.stores.catalog import Catalog
from mauve.stores.sql.catalog.apps import SqlApps
from mauve.stores.sql.catalog.installation import SqlInstallation
from mauve.stores.sql.catalog.keys import SqlKeys
from mauve.stores.sql.catalog.links import SqlLinks
from mauve.stores.sql.catalog.organizations import SqlOrganizations
from mauve.stores.sql.catalog.passwords import SqlPasswords
from mauve.stores.sql.catalog.publications import SqlPublications
from mauve.stores.sql.catalog.sessions import SqlSessions
from mauve.stores.sql.catalog.tokens import SqlTokens
from mauve.stores.sql.catalog.users import SqlUsers
from mauve.stores.sql.catalog.webhook_secrets import SqlWebhookSecrets
from mauve.stores.sql.database import Database


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
