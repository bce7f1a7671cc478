from pathlib import Path

import pytest

from mauve.config import SETTINGS, SettingError, settings_from
from mauve.core.secret import Secret


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
    ],
)
def test_an_invalid_setting_is_named_in_the_error(name, value):
    with pytest.raises(SettingError, match=name):
        settings_from({name: value})


@pytest.mark.parametrize("url", ["https://metrics.example.com", "http://127.0.0.1:1/", "http://[::1]:8080"])
def test_a_public_url_is_an_address_without_a_path(url):
    assert settings_from({"MAUVE_PUBLIC_URL": url}).public_url == url
    assert settings_from({"MAUVE_PUBLIC_URL": ""}).public_url is None


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
    secrets = ("MAUVE_MASTER_KEY", "MAUVE_DATABASE_URL", "MAUVE_WAREHOUSE_URL", "MAUVE_STREAM_URL")
    files = {f"{name}_FILE" for name in secrets}
    assert environment.asked == {setting.name for setting in SETTINGS} | files


def test_a_secret_may_come_from_a_file(tmp_path):
    (tmp_path / "key").write_text("c2VjcmV0\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    assert settings_from({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "key")}).master_key == Secret("c2VjcmV0")
    for wrong, says in [
        ({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "absent")}, "No such file"),
        ({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "binary")}, "not a text"),
        ({"MAUVE_MASTER_KEY_FILE": str(tmp_path / "key"), "MAUVE_MASTER_KEY": "x"}, "both set"),
    ]:
        with pytest.raises(SettingError, match=says):
            settings_from(wrong)


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


def test_the_master_key_does_not_show_in_the_settings():
    assert "c2VjcmV0" not in repr(settings_from({"MAUVE_MASTER_KEY": "c2VjcmV0"}))
