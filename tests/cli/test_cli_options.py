"""`--option` and `--token-command` of the commands that send requests."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from command_runs import run
from faults.server import FaultServer, Reply

from delta_sharing_client.cli.app import cli


@pytest.fixture
def recorder():
    """A server without shares that keeps the requests' headers."""
    with FaultServer() as running:
        running.on("GET", "*", Reply.of_json({"items": []}))
        yield running


@pytest.fixture
def empty(recorder, profile):
    """The path of its profile."""
    path = Path("empty.share")
    path.touch(0o600)
    path.write_text(json.dumps(recorder.profile))
    return str(path)


def printing(text):
    return shlex.join([sys.executable, "-c", f"print({text!r})"])


def test_an_option_is_passed(recorder, empty):
    run("ls", empty, "--option", 'headers={"X-Api-Key": "a=b"}', "--option", "user_agent=job/1")
    (request,) = recorder.requests
    assert (request.headers["x-api-key"], request.headers["user-agent"]) == ("a=b", "job/1")


@pytest.mark.parametrize(
    "output", ["a-token", '{"bearerToken": "a-token", "expirationTime": "2999-01-01T00:00:00Z"}']
)
def test_the_token_is_that_of_the_command(recorder, empty, output):
    run("ls", empty, "--token-command", printing(output))
    (request,) = recorder.requests
    assert request.headers["authorization"] == "Bearer a-token"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--option", "read_timeout"], 2, "the option read_timeout is malformed: it takes a duration"),
        (["--option", "read_timeot=1"], 2, "the option read_timeot is unknown; is read_timeout meant?"),
        (["--token-command", "false"], 4, "the token command ended with exit code 1"),
        (["--token-command", "no-such-program-here"], 4, "no-such-program-here"),
        (["--token-command", printing("")], 4, "a token that is empty"),
        (["--token-command", printing("{}")], 4, "the credential provider failed"),
    ],
)
def test_mistakes(empty, arguments, code, message):
    result = run("ls", empty, *arguments, code=code)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_every_command_but_serve_has_them():
    for name, command in cli.commands.items():
        found = {option for parameter in command.params for option in parameter.opts}
        assert ({"--option", "--token-command"} <= found) == (name not in ("serve", "profile"))
