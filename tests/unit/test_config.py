import os
from pathlib import Path

import pytest

from mauve.config import SECRETS, SETTINGS, SettingError, misspelled, settings_from
from mauve.core.secret import Secret
from mauve.secret_file import SECRET_BYTES_MAX
from mauve.urls import http_url


def test_an_empty_environment_gives_the_defaults():
    settings = settings_from({})
    assert (settings.data, settings.host) == (Path("mauve-data"), "127.0.0.1")
    assert (settings.port, settings.ingest_port) == (8080, 8081)
    assert settings.workers >= 1
    assert settings.master_key is None
    assert settings.read_cache_s == 300
    assert settings.read_s_max == 10


def test_the_read_cache_can_be_switched_off():
    assert settings_from({"MAUVE_READ_CACHE_SECONDS": "0"}).read_cache_s == 0


def test_a_stop_waits_for_clients_only_if_other_machines_can_serve_them():
    servers = {
        "MAUVE_DATABASE_URL": "postgresql://a:b@c/d",
        "MAUVE_WAREHOUSE_URL": "clickhouse://a:b@c/d",
        "MAUVE_STREAM_URL": "nats://a",
    }
    key = {"MAUVE_MASTER_KEY": "any"}
    assert settings_from(servers | key).drain_s == 5
    assert settings_from(servers | key | {"MAUVE_DRAIN_SECONDS": "0"}).drain_s == 0
    for missing in servers:
        assert settings_from({name: url for name, url in (servers | key).items() if name != missing}).drain_s == 0


@pytest.mark.parametrize(
    ("environment", "limit"),
    [
        ({}, 1536),
        ({"MAUVE_CONNECTIONS_PER_ADDRESS": "10"}, 10),
        ({"MAUVE_CONNECTIONS_PER_ADDRESS": "0"}, 0),
        ({"MAUVE_CONNECTIONS_PER_ADDRESS": "10", "MAUVE_PROXIES": "1"}, 0),
    ],
)
def test_connections_per_address_are_unlimited_behind_a_proxy(environment, limit):
    assert settings_from(environment).connections_per_address == limit


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAUVE_HANG_SECONDS", "4"),
        ("MAUVE_LOAD_HANG_SECONDS", "4"),
        ("MAUVE_CONNECTIONS_PER_ADDRESS", "many"),
        ("MAUVE_PORT", "http"),
        ("MAUVE_PORT", "-1"),
        ("MAUVE_PORT", "65536"),
        ("MAUVE_PORT", "٣"),
        ("MAUVE_PORT", ""),
        ("MAUVE_INGEST_PORT", "1.5"),
        ("MAUVE_WORKERS", "0"),
        ("MAUVE_CATALOG_TIMEOUT_SECONDS", "0"),
        ("MAUVE_STREAM_KEEP_HOURS", "721"),
        ("MAUVE_UPGRADE_BACKUPS", "101"),
        ("MAUVE_READ_CACHE_SECONDS", "-1"),
        ("MAUVE_READ_CACHE_SECONDS", "86401"),
        ("MAUVE_READ_SECONDS", "0"),
        ("MAUVE_READ_SECONDS", "301"),
        ("MAUVE_LOG", "xml"),
        ("MAUVE_PUBLIC_URL", "foo"),
        ("MAUVE_PUBLIC_URL", "metrics.example.com"),
        ("MAUVE_PUBLIC_URL", "ftp://metrics.example.com"),
        ("MAUVE_PUBLIC_URL", "https://"),
        ("MAUVE_PUBLIC_URL", "https://:8080"),
        ("MAUVE_PUBLIC_URL", "https://metrics.example.com:http"),
        ("MAUVE_PUBLIC_URL", "https://metrics.example.com/mauve"),
        ("MAUVE_PUBLIC_URL", "https://metrics.example.com?a=b"),
        ("MAUVE_PUBLIC_URL", "https://[::1"),
        ("MAUVE_PUBLIC_URL", "https://a b.example"),
        ("MAUVE_PUBLIC_INGEST_URL", "ingest.example.com"),
    ],
)
def test_an_invalid_setting_is_named_in_the_error(name, value):
    with pytest.raises(SettingError, match=name):
        settings_from({name: value})


@pytest.mark.parametrize("url", ["https://metrics.example.com", "http://127.0.0.1:1/", "http://[::1]:8080"])
def test_a_public_url_is_an_address_without_a_path(url):
    assert settings_from({"MAUVE_PUBLIC_URL": url}).public_url == url
    assert settings_from({"MAUVE_PUBLIC_INGEST_URL": url}).public_ingest_url == url
    assert settings_from({"MAUVE_PUBLIC_URL": ""}).public_url is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("fe80::1", "http://[fe80::1]:8000"),
        ("metrics.example", "http://metrics.example:8000"),
    ],
)
def test_the_address_of_a_service_can_be_opened_even_if_it_listens_everywhere(host, url):
    assert http_url(host, 8000) == url


def test_every_listed_setting_is_read():
    class Recording(dict):
        def __init__(self):
            super().__init__()
            self.asked = set()

        def get(self, name, default=None):
            self.asked.add(name)
            return default

    environment = Recording()
    settings_from(environment)
    files = {f"{name}_FILE" for name in SECRETS}
    of_amazon = {"AWS_REGION"}  # the default of one of ours
    assert environment.asked == {setting.name for setting in SETTINGS} | files | of_amazon


@pytest.mark.parametrize(
    ("environment", "port"),
    [
        ({"PORT": "3000"}, 3000),
        ({"PORT": "3000", "MAUVE_PORT": "9000"}, 9000),
        ({"PORT": "any", "MAUVE_PORT": "9000"}, 9000),
        ({"PORT": ""}, 8080),
        ({"PORT": "", "MAUVE_PORT": "9000"}, 9000),
    ],
)
def test_the_port_of_the_platform_is_used_unless_mauve_has_its_own(environment, port):
    assert settings_from(environment).port == port


def test_an_invalid_port_of_the_platform_is_named_as_it_was_set():
    with pytest.raises(SettingError, match=r"^PORT must be a whole number"):
        settings_from({"PORT": "tcp://10.0.0.1:80"})


def test_the_address_that_kubernetes_sets_for_a_service_is_explained():
    with pytest.raises(SettingError, match=r"^MAUVE_PORT .* enableServiceLinks: false"):
        settings_from({"MAUVE_PORT": "tcp://10.0.0.1:8080"})


VALUES = {
    "MAUVE_MASTER_KEY": "c2VjcmV0",
    "MAUVE_DATABASE_URL": "postgresql://a:b@c/d",
    "MAUVE_WAREHOUSE_URL": "clickhouse://a:b@c/d",
    "MAUVE_STREAM_URL": "nats://a",
    "MAUVE_BACKUP_SECRET_ACCESS_KEY": "secret",
    "MAUVE_SMTP_URL": "smtp://a:b@c:587",
}


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("name", SECRETS)
def test_every_secret_may_come_from_a_file(tmp_path, name, end):
    (tmp_path / "secret").write_bytes((VALUES[name] + end).encode())
    others = {each: value for each, value in VALUES.items() if each != name}
    others["MAUVE_BACKUP_ACCESS_KEY_ID"] = "id"
    settings = settings_from({f"{name}_FILE": str(tmp_path / "secret"), **others})
    owner, prefix = (settings.backup, "MAUVE_BACKUP_") if "BACKUP" in name else (settings, "MAUVE_")
    assert getattr(owner, name.removeprefix(prefix).lower()) == Secret(VALUES[name])
    with pytest.raises(SettingError, match=f"{name} and {name}_FILE are both set: keep one"):
        settings_from({f"{name}_FILE": str(tmp_path / "secret"), **VALUES})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"canary\0", "NUL"),
        (b"canary\xff", "not text"),
        (b"canary" * SECRET_BYTES_MAX, f"more than {SECRET_BYTES_MAX} bytes"),
    ],
)
def test_a_file_without_a_usable_secret_is_refused_and_never_shown(tmp_path, content, says):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(SettingError, match=says) as refused:
        settings_from({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "key")})
    assert "MAUVE_MASTER_KEY_FILE" in str(refused.value)
    assert str(tmp_path / "key") in str(refused.value)
    assert "canary" not in str(refused.value)


def test_a_secret_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "key").write_text("x" * SECRET_BYTES_MAX)
    settings = settings_from({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "key")})
    assert len(settings.master_key.reveal()) == SECRET_BYTES_MAX


def test_a_path_that_is_no_readable_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # Nothing writes to it: opening it would wait forever.
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, says in [
        ("", "is empty: name a file"),
        (str(tmp_path / "absent"), "No such file or directory.*check the path"),
        (str(tmp_path / "loop"), "symbolic links"),
        (str(tmp_path / "pipe"), "not a regular file"),
        (str(tmp_path), "[Dd]irectory"),
        ("/dev/zero", "not a regular file"),
        ("a\0b", "null"),
    ]:
        with pytest.raises(SettingError, match=says):
            settings_from({"MAUVE_MASTER_KEY_FILE": path})


def test_a_file_without_permission_is_refused(tmp_path):
    (tmp_path / "key").touch(mode=0)
    user = os.geteuid()
    os.seteuid(user or 65_534)  # Root may read every file.
    try:
        with pytest.raises(SettingError, match=r"Permission denied.*permissions"):
            settings_from({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "key")})
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "mysql://canary@host/db",
        "postgresql://canary@/db",
        "postgresql://canary@host",
        "postgresql://h:x/canary",
        "postgresql://canary@host/a/b",
    ],
)
def test_a_database_url_is_checked_and_never_shown(url):
    with pytest.raises(SettingError) as refused:
        settings_from({"MAUVE_DATABASE_URL": url, "MAUVE_MASTER_KEY": "c2VjcmV0"})
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "url", "form"),
    [
        ("MAUVE_WAREHOUSE_URL", "http://canary@host:8123/mauve", "clickhouse://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("MAUVE_WAREHOUSE_URL", "clickhouse://canary@host:8123", "clickhouse://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("MAUVE_WAREHOUSE_URL", "clickhouse://canary@host/a/b", "clickhouse://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("MAUVE_STREAM_URL", "nats://a:4222,canary", "nats://HOST:4222"),
        ("MAUVE_STREAM_URL", "nats://canary:99999999", "nats://HOST:4222"),
        ("MAUVE_STREAM_URL", "", "nats://HOST:4222"),
        ("MAUVE_STREAM_MONITOR_URL", "canary:8222", "http://HOST:8222"),
    ],
)
def test_addresses_of_servers_are_checked_and_never_shown(name, url, form):
    with pytest.raises(SettingError) as refused:
        settings_from({name: url, "MAUVE_MASTER_KEY": "c2VjcmV0"})
    assert name in str(refused.value)
    assert form in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("MAUVE_DATABASE_URL", "postgresql://user:canary@host/db"),
        ("MAUVE_WAREHOUSE_URL", "clickhouses://user:canary@host:8443/mauve?cluster=main"),
        ("MAUVE_STREAM_URL", "nats://user:canary@a:4222,nats://user:canary@b:4222"),
    ],
)
def test_a_server_needs_the_master_key_in_the_settings(name, url):
    with pytest.raises(SettingError, match="MAUVE_MASTER_KEY"):
        settings_from({name: url})
    assert "canary" not in repr(settings_from({name: url, "MAUVE_MASTER_KEY": "c2VjcmV0"}))


def test_alerts_are_on_unless_they_are_turned_off():
    assert settings_from({}).alerts
    assert not settings_from({"MAUVE_ALERTS": "0"}).alerts
    with pytest.raises(SettingError, match="MAUVE_ALERTS must be a whole number from 0 to 1"):
        settings_from({"MAUVE_ALERTS": "off"})


def test_the_master_key_does_not_show_in_the_settings():
    assert "c2VjcmV0" not in repr(settings_from({"MAUVE_MASTER_KEY": "c2VjcmV0"}))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MAUVE_WORKER", "MAUVE_WORKERS"),
        ("MAUVE_READ_CACHE_SECOND", "MAUVE_READ_CACHE_SECONDS"),
        ("MAUVE_RETENTION_DAYS", "MAUVE_RAW_RETENTION_DAYS"),
        ("MAUVE_MASTERKEY_FILE", "MAUVE_MASTER_KEY_FILE"),
    ],
)
def test_a_misspelled_setting_is_found(name, meant):
    assert misspelled({name: "1", "MAUVE_HOST": "::1"}) == {name: meant}


@pytest.mark.parametrize(
    "name", ["MAUVE_PORT", "MAUVE_TOKEN", "MAUVE_SMTP_URL_FILE", "MAUVE_PORT_8080_TCP", "MAUVE_SERVICE_HOST", "PROT"]
)
def test_a_setting_or_a_name_of_something_else_is_not_misspelled(name):
    assert misspelled({name: "1"}) == {}
