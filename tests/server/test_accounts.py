"""Accounts: who gets in, what each may do, and what the database holds of their secrets."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from server_accounts import OPERATOR, PASSWORD, logged_in
from trainshed.errors import NotFoundError, UsageError
from trainshed.server.accounts import audit
from trainshed.server.accounts.identity import DeniedError, Role, UnknownCallerError
from trainshed.server.accounts.keyring import MOST, Keyring
from trainshed.server.accounts.limits import (
    PER_ACCOUNT,
    PER_ADDRESS,
    WINDOW,
    AttemptLimits,
    TooManyAttemptsError,
)
from trainshed.server.accounts.people import ConflictError, People
from trainshed.server.accounts.vault import Vault, VaultError
from trainshed.server.database import Database
from trainshed.server.database.schema import metadata, sessions, tokens
from trainshed.spec.kinds import DeviceKind

pytestmark = [pytest.mark.server]
BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def everything(database: Database) -> str:
    """All that the database holds, as text."""
    with database.read() as connection:
        rows = [str(row) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    return "\n".join(rows)


def test_a_session_leads_to_its_user_until_it_is_revoked(keyring: Keyring) -> None:
    session, _ = keyring.log_in("ann", PASSWORD, "10.0.0.1")
    who = keyring.identify(session, "10.0.0.2")
    assert (who.name, dict(who.teams), who.is_admin) == ("ann", {"red": Role.MEMBER}, False)
    keyring.log_out(session)
    with pytest.raises(UnknownCallerError):
        keyring.identify(session, "10.0.0.2")


def test_wrong_name_and_wrong_password_are_answered_alike(keyring: Keyring) -> None:
    told = []
    for name, password in (("ann", "wrong"), ("nobody", PASSWORD), ("ann", ""), ("", ""), ("a\0nn", "x")):
        with pytest.raises(UnknownCallerError) as error:
            keyring.log_in(name, password, "10.0.0.1")
        told.append(str(error.value))
    assert len(set(told)) == 1


def test_an_expired_session_and_an_expired_token_are_nobodys(keyring: Keyring) -> None:
    session, _ = keyring.log_in("ann", PASSWORD, "")
    _, token = keyring.add_token(logged_in(keyring, "ann"), "ci", seconds=3600)
    assert keyring.identify(token, "").name == "ann"
    with keyring.database.write() as connection:
        connection.execute(update(sessions).values(expires=1.0))
        connection.execute(update(tokens).values(expires=1.0))
    for credential in (session, token):
        with pytest.raises(UnknownCallerError):
            keyring.identify(credential, "")


def test_a_user_who_is_no_longer_active_gets_in_by_no_credential(keyring: Keyring, people: People) -> None:
    ann = logged_in(keyring, "ann")
    _, token = keyring.add_token(ann, "ci")
    key, secret = keyring.add_access_key(ann)
    assert keyring.secret_key(key) == secret
    people.change_user(OPERATOR, "ann", is_active=False)
    with pytest.raises(UnknownCallerError):
        keyring.identify(token, "")
    with pytest.raises(UnknownCallerError):
        keyring.secret_key(key)
    with pytest.raises(UnknownCallerError):
        keyring.log_in("ann", PASSWORD, "")


def test_a_new_password_ends_all_sessions(keyring: Keyring, people: People) -> None:
    session, _ = keyring.log_in("ann", PASSWORD, "")
    people.change_user(keyring.identify(session, ""), "ann", password="another long password")
    with pytest.raises(UnknownCallerError):
        keyring.identify(session, "")
    keyring.log_in("ann", "another long password", "")


def test_log_in_attempts_end_for_the_account_and_for_the_address(keyring: Keyring) -> None:
    for _ in range(PER_ACCOUNT):
        with pytest.raises(UnknownCallerError):
            keyring.log_in("ann", "wrong", "10.0.0.1")
    with pytest.raises(TooManyAttemptsError):
        keyring.log_in("ann", PASSWORD, "10.0.0.9")
    keyring.log_in("ben", PASSWORD, "10.0.0.1")


def test_limits_pass_with_time_and_take_bounded_memory() -> None:
    now = [0.0]
    limits = AttemptLimits(clock=lambda: now[0])
    for index in range(30_000):
        limits.failed(f"user-{index}", f"address-{index}")
    assert len(limits._failures) <= 20_000
    for _ in range(PER_ADDRESS):
        limits.failed("somebody", "here")
    with pytest.raises(TooManyAttemptsError):
        limits.check("another", "here")
    now[0] = WINDOW + 1
    limits.check("another", "here")


@BOTH
def test_nothing_in_the_database_gets_anybody_in(keyring: Keyring, people: People) -> None:
    ann = logged_in(keyring, "ann")
    session, _ = keyring.log_in("ann", PASSWORD, "")
    _, token = keyring.add_token(ann, "ci")
    _, secret = keyring.add_access_key(ann)
    keyring.set_secret(ann, "HF_TOKEN", "the-value-of-it")
    held = everything(people.database)
    for shown_once in (PASSWORD, session, token, secret, "the-value-of-it"):
        assert shown_once not in held
        assert shown_once.encode().hex() not in held


@BOTH
def test_secrets_reach_their_owners_jobs_alone(keyring: Keyring) -> None:
    ann = logged_in(keyring, "ann")
    keyring.set_secret(ann, "KEY", "first-value")
    keyring.set_secret(ann, "KEY", "second-value")
    assert keyring.secret_values("ann", ["KEY"]) == {"KEY": "second-value"}
    assert [row["name"] for row in keyring.secrets(ann)] == ["KEY"]
    assert "value" not in keyring.secrets(ann)[0]
    with pytest.raises(NotFoundError, match="KEY"):
        keyring.secret_values("ben", ["KEY"])
    keyring.remove_secret(ann, "KEY")
    with pytest.raises(NotFoundError):
        keyring.secret_values("ann", ["KEY"])


def test_another_key_file_reads_no_secret(keyring: Keyring, tmp_path: Path) -> None:
    keyring.set_secret(logged_in(keyring, "ann"), "KEY", "a-secret-value")
    other = replace(keyring, vault=Vault.at(tmp_path / "other"))
    with pytest.raises(VaultError, match="key file"):
        other.secret_values("ann", ["KEY"])


def test_an_encrypted_value_cannot_be_moved_to_another_user(keyring: Keyring) -> None:
    keyring.set_secret(logged_in(keyring, "ann"), "KEY", "a-secret-value")
    ben = logged_in(keyring, "ben")
    with keyring.database.write() as connection:
        connection.execute(text("UPDATE secrets SET user_id = :ben"), {"ben": ben.id})
    with pytest.raises(VaultError):
        keyring.secret_values("ben", ["KEY"])


def test_the_key_file_is_its_owners_alone_and_kept(tmp_path: Path) -> None:
    first = Vault.at(tmp_path / "key").encrypt("text", "purpose")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert Vault.at(tmp_path / "key").decrypt(first, "purpose") == "text"
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(VaultError, match="5 bytes"):
        Vault.at(tmp_path / "key")


def test_one_user_cannot_touch_anothers_keys(keyring: Keyring) -> None:
    ann, ben = logged_in(keyring, "ann"), logged_in(keyring, "ben")
    number, token = keyring.add_token(ann, "ci")
    key, _ = keyring.add_access_key(ann)
    told = []
    for remove, name in ((keyring.remove_token, number), (keyring.remove_access_key, key)):
        for subject in (name, "missing"):
            with pytest.raises(NotFoundError) as error:
                remove(ben, subject)
            told.append(error.value.message.replace(repr(subject), "…"))
    assert told[0] == told[1] and told[2] == told[3]
    assert keyring.identify(token, "").name == "ann" and keyring.tokens(ben) == []


def test_the_number_of_keys_is_limited(keyring: Keyring) -> None:
    ann = logged_in(keyring, "ann")
    for index in range(MOST):
        keyring.set_secret(ann, f"S{index}", "some-value")
    with pytest.raises(UsageError, match="at most"):
        keyring.set_secret(ann, "ONE_MORE", "some-value")
    keyring.set_secret(ann, "S0", "another-value")


def test_ssh_keys_have_the_fingerprint_that_ssh_keygen_prints(keyring: Keyring, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
    line = (tmp_path / "id.pub").read_text()
    printed = subprocess.run(
        ["ssh-keygen", "-lf", tmp_path / "id.pub"], capture_output=True, text=True, check=True
    )
    ann = logged_in(keyring, "ann")
    assert keyring.add_ssh_key(ann, "laptop", line) in printed.stdout
    with pytest.raises(ConflictError):
        keyring.add_ssh_key(ann, "laptop", line)
    for wrong in (
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        f"ssh-rsa {line.split()[1]}",
        (tmp_path / "id").read_text(),
    ):
        with pytest.raises(UsageError, match="invalid SSH public key"):
            keyring.add_ssh_key(ann, "x", wrong)


def test_roles_decide_who_may_change_what(keyring: Keyring, people: People) -> None:
    ann, ben, cem = (logged_in(keyring, name) for name in ("ann", "ben", "cem"))
    assert (
        ann.may_change("ann", "red")
        and not ann.may_change("cem", "red")
        and not ann.may_change("ann", "blue")
    )
    assert cem.may_change("ann", "red") and not cem.may_change("ben", "blue")
    assert OPERATOR.may_change("ben", "blue")
    for attempt in (
        lambda: people.add_user(ann, "eve"),
        lambda: people.add_team(cem, "green"),
        lambda: people.change_user(ann, "ben", password="a new password"),
        lambda: people.change_user(ann, "ann", is_admin=True),
        lambda: people.set_member(ann, "red", "ben", Role.MEMBER),
        lambda: people.set_member(ben, "red", "ben", Role.MEMBER),
        lambda: people.set_quota(cem, "red", DeviceKind.CPU, 8),
    ):
        with pytest.raises(DeniedError):
            attempt()
    people.set_member(cem, "red", "ben", Role.MEMBER)
    assert logged_in(keyring, "ben").sees("red")


@BOTH
def test_a_user_sees_their_teams_and_their_people_alone(keyring: Keyring, people: People) -> None:
    ann = logged_in(keyring, "ann")
    assert [user["name"] for user in people.users(ann)] == ["ann", "cem"]
    assert [team["name"] for team in people.teams(ann)] == ["red"]
    assert [team["name"] for team in people.teams(OPERATOR)] == ["blue", "red"]


def test_foreign_and_missing_teams_are_answered_alike(keyring: Keyring) -> None:
    ann = logged_in(keyring, "ann")
    told = set()
    for team in ("blue", "gone"):
        with pytest.raises(NotFoundError) as error:
            ann.team(team)
        told.add(str(error.value).replace(team, "…"))
    assert len(told) == 1


@BOTH
def test_names_are_checked_and_given_once(people: People) -> None:
    with pytest.raises(ConflictError, match="'ann'"):
        people.add_user(OPERATOR, "ann")
    for wrong in ("", "Ann", "a b", "../x", "a" * 33, "é"):
        with pytest.raises(UsageError, match="invalid name"):
            people.add_user(OPERATOR, wrong)
    with pytest.raises(UsageError, match="3 characters"):
        people.add_user(OPERATOR, "eve", "abc")


def test_the_last_administrator_stays(people: People) -> None:
    password = People(people.database).make_first_admin()
    assert password is None, "there are users already"
    with pytest.raises(UsageError, match="last administrator"):
        people.change_user(OPERATOR, "dan", is_active=False)


def test_the_first_admin_is_made_once(database: Database, tmp_path: Path) -> None:
    people = People(database)
    password = people.make_first_admin()
    assert password and people.make_first_admin() is None
    keyring = Keyring(database, Vault.at(tmp_path / "key"))
    session, _ = keyring.log_in("admin", password, "")
    assert keyring.identify(session, "").is_admin


@BOTH
def test_quotas_are_set_and_taken_back(people: People) -> None:
    people.set_quota(OPERATOR, "red", DeviceKind.ASCEND, 8)
    people.set_quota(OPERATOR, "red", DeviceKind.ASCEND, 4)
    assert people.quotas() == {("red", "ascend"): 4}
    people.set_quota(OPERATOR, "red", DeviceKind.ASCEND, None)
    assert people.quotas() == {}
    with pytest.raises(NotFoundError, match="green"):
        people.set_quota(OPERATOR, "green", DeviceKind.CPU, 4)


@BOTH
def test_the_audit_log_says_who_did_what_by_which_door(keyring: Keyring, people: People) -> None:
    ann = logged_in(keyring, "ann")
    keyring.set_secret(ann, "KEY", "never-in-the-log")
    newest, *older = audit.entries(people.database)
    assert (newest["user"], newest["action"], newest["subject"], newest["door"]) == (
        "ann",
        "secret.set",
        "KEY",
        "api",
    )
    assert ("operator", "user.create", "cli") in {(e["user"], e["action"], e["door"]) for e in older}
    assert "never-in-the-log" not in str([newest, *older])
    page = audit.entries(people.database, before=newest["id"], limit=2)
    assert page == older[:2]
