# SPDX-License-Identifier: Apache-2.0
"""The calls of server.py to its agent, and the stream of the agent's events, from Python's standard library alone."""
import json
import os
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

AGENT = os.environ.get("AGENT", "http://127.0.0.1:8401")
TOKEN = os.environ.get("ROOST_TOKEN")


class AgentError(Exception):
    """An answer of the agent that is not a success."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def room_path(room):
    return "/v1/rooms/" + quote(room, safe="")


def _request(method, path, body=None):
    headers = {"Authorization": "Bearer " + TOKEN} if TOKEN else {}
    data = None
    if method != "GET":
        headers["Content-Type"] = "application/json"
        data = json.dumps(body or {}).encode()
    return Request(AGENT + path, data, headers, method=method)


def ask(method, path, body=None):
    """Calls the agent. Raises an AgentError for its errors, and an OSError if no agent answers."""
    try:
        with urlopen(_request(method, path, body), timeout=15) as response:
            return json.load(response)
    except HTTPError as err:
        with err:
            problem = json.load(err)
        raise AgentError(problem["code"], problem["error"]) from None


def locate(room, demand, node):
    """Returns the node of the room: by its pin, or by the hash if the agent has no store."""
    try:
        return ask("POST", room_path(room) + "/resolve", demand)
    except AgentError as err:
        if err.code != "no_store":
            raise
    owner = ask("GET", "/v1/place?key=" + quote(room, safe=""))["owner"]
    return {"node": owner, "hosted": owner["id"] == node, "epoch": 0}


def events():
    """Yields the type and the data of each event, until the stream breaks."""
    with urlopen(_request("GET", "/v1/events"), timeout=40) as stream:  # a comment comes every 15 s
        kind = data = None
        for line in stream:
            field, _, value = line.decode().rstrip("\n").partition(":")
            if field == "event":
                kind = value.strip()
            elif field == "data":
                data = value
            elif line == b"\n" and data:
                yield kind, json.loads(data)
                kind = data = None
