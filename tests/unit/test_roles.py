import pytest

from mauve.core.credential import Scope
from mauve.core.user import GRANTS_OF, Permission, Role, may, roles_within, scopes_of


def test_each_role_holds_its_scopes():
    assert scopes_of(Role.OWNER) == scopes_of(Role.ADMIN) == frozenset(Scope)
    assert scopes_of(Role.DEVELOPER) == frozenset(Scope) - {Scope.APPS_WRITE}
    assert scopes_of(Role.VIEWER) == {Scope.APPS_READ, Scope.METRICS_READ}


def test_every_role_is_in_the_table_and_the_owner_may_do_everything():
    assert set(GRANTS_OF) == set(Role)
    assert GRANTS_OF[Role.OWNER] == frozenset(Scope) | frozenset(Permission)


def test_a_role_holds_all_that_the_roles_below_it_hold():
    for role in Role:
        for lower in roles_within(role):
            assert GRANTS_OF[lower] <= GRANTS_OF[role]


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.VIEWER])
@pytest.mark.parametrize("permission", [Permission.MEMBERS_WRITE, Permission.CAP_WRITE, Permission.ORGANIZATION_WRITE])
def test_developers_and_viewers_cannot_change_the_organization(role, permission):
    assert not may(role, permission)


def test_only_the_owner_may_change_the_cap():
    assert [role for role in Role if may(role, Permission.CAP_WRITE)] == [Role.OWNER]


def test_no_role_may_assign_a_higher_one():
    assert roles_within(Role.OWNER) == (Role.OWNER, Role.ADMIN, Role.DEVELOPER, Role.VIEWER)
    assert roles_within(Role.ADMIN) == (Role.ADMIN, Role.DEVELOPER, Role.VIEWER)
    assert roles_within(Role.VIEWER) == (Role.VIEWER,)
