"""A toy media server next to a roost agent, explained in docs/sidecar.md.

    AGENT=http://127.0.0.1:8401 LISTEN=127.0.0.1:9001 python3 server.py

LISTEN is the agent's --api-addr. ROOST_TOKEN is the agent's bearer token, if it needs one. The server needs Python 3.9
or newer and no packages. It counts the participants of GET /join/<room>?size=N, and has no media.
"""
import json
import os
import random
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

from agent import AgentError, ask, events, locate, room_path

LISTEN = urlsplit("//" + os.environ.get("LISTEN", "127.0.0.1:9001"))
EVACUATION = {"rate": 50, "deadline_ms": 20_000}  # of the rooms at the end, see /v1/drain
FAILURES = (AgentError, OSError, ValueError)  # of a call to the agent

lock = threading.Lock()  # of the next three
node = None  # the id of the agent's node, once it answers
rooms = {}  # those served here, by name: {"size", "epoch", "due"}
changes = 0  # events so far

stopping = threading.Event()
wake = threading.Event()  # rooms may be due before their time


def settle(room, demand):
    """Looks up the node of the room, and starts or stops serving the room here. A demand with touch sets the size of
    the room, and any other demand is a join."""
    while True:
        with lock:
            seen = changes
        at = locate(room, demand, node)
        with lock:
            if seen != changes:
                continue  # an event that came before the answer may be newer than it
            if not at["hosted"]:
                rooms.pop(room, None)
                return at
            served = rooms.setdefault(room, {"size": 0})
            served["size"] = demand["size"] if demand.get("touch") else max(demand["size"], served["size"])
            served["epoch"] = at["epoch"]
            # At half of the time, so that one retry is left before the hosting expires.
            served["due"] = time.monotonic() + at.get("touch_within_s", float("inf")) / 2
            return at


def touch(room):
    """Checks whether a room that is served here still lives here, and reports its size."""
    with lock:
        if room not in rooms:
            return
        size = rooms[room]["size"]
    try:
        settle(room, {"size": size, "touch": True})
    except FAILURES as err:
        print(f"{room}: {err}", file=sys.stderr)
        with lock:
            if getattr(err, "code", "") == "not_ready":
                rooms.pop(room, None)  # the agent's lease ran out: it owns nothing
            elif room in rooms:
                rooms[room]["due"] = time.monotonic() + 0.5


def keep():
    """Touches the rooms that are due."""
    while not stopping.is_set():
        wake.wait(0.1)
        wake.clear()
        with lock:
            due = [room for room, served in rooms.items() if served["due"] <= time.monotonic()]
        for room in due:
            touch(room)


def report():
    """Reports health and load. If the reports end, the agent takes no rooms until they are back."""
    computed = False  # whether the agent computes the load itself (--report-load)
    while True:
        try:
            ask("POST", "/v1/health", {"ttl_ms": 15_000})
            if not computed:
                with lock:
                    units = sum(served["size"] for served in rooms.values())
                ask("POST", "/v1/load", {"units": units})
        except FAILURES as err:
            computed = computed or getattr(err, "code", "") == "load_computed"
            if not computed:
                print(f"report: {err}", file=sys.stderr)
        if stopping.wait(5):
            return


def follow():
    """Keeps a stream of events open. It only marks rooms as due, because the agent drops slow readers."""
    global node, changes
    wait = 0.1
    while True:
        try:
            if node is None:
                node = ask("POST", "/v1/undrain?wait=0s")["self"]  # the last stop drained it
            first = True  # earlier moves are not sent
            for kind, data in events():
                wait = 0.1
                with lock:
                    changes += 1
                    for moved in data["moved"] if kind == "moved" else ():
                        served = rooms.get(moved["room"])
                        if served and moved["to"] != node and moved["epoch"] > served["epoch"]:
                            del rooms[moved["room"]]  # here the participants would get the directive
                    if first or data.get("resync") or data.get("released"):
                        for served in rooms.values():
                            served["due"] = 0
                        wake.set()
                first = False
        except FAILURES as err:
            print(f"agent: {err}", file=sys.stderr)
        time.sleep(wait * random.uniform(0.5, 1.5))  # not all servers at the same time
        wait = min(2 * wait, 5)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        size = parse_qs(url.query).get("size", ["1"])[0]
        try:
            if url.path.startswith("/join/") and size.isdigit():
                self.join(unquote(url.path[len("/join/"):]), int(size))
            elif url.path == "/rooms":
                with lock:
                    served = sorted(rooms)
                self.answer(200, {"node": node, "rooms": served})
            else:
                self.answer(404, {"error": "GET /join/<room>?size=N or /rooms"})
        except FAILURES as err:
            code = getattr(err, "code", "")
            self.answer(400 if code == "bad_request" else 503, {"error": str(err), "code": code}, {"Retry-After": "1"})

    def join(self, room, size):
        """Redirects to the node of the room."""
        if node is None:
            raise OSError("the agent has not answered yet")
        at = settle(room, {"size": size})
        to = at.get("node") or {}
        body = {"room": room, "node": to.get("id")}
        if at["hosted"]:
            self.answer(200, body)
        elif to.get("api_addr"):
            self.answer(307, body, {"Location": f"http://{to['api_addr']}/join/{quote(room, safe='')}?size={size}"})
        else:
            raise OSError("the owner has no api_addr, or is gone")

    def answer(self, status, body, headers={}):
        text = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for running joins
    request_queue_size = 128


def evacuate():
    """Has the agent move the rooms to other nodes, and waits until it has done so, or until the time is over."""
    deadline = time.monotonic() + EVACUATION["deadline_ms"] / 1000
    try:
        ask("POST", "/v1/drain?wait=5s", {"rooms": EVACUATION})
    except AgentError as err:
        if err.code != "no_store":
            raise
        ask("POST", "/v1/drain?wait=5s")
    while not (ask("GET", "/v1/stats").get("evacuation") or {"over": True}).get("over"):
        if time.monotonic() > deadline:
            raise TimeoutError("rooms are left")
        time.sleep(0.05)


def stop(server):
    """Evacuates the rooms, and then ends the server."""
    try:
        evacuate()
    except FAILURES as err:
        print(f"stop: {err}", file=sys.stderr)
    server.shutdown()


def release():
    """Ends the rooms that are left, and the reports."""
    for room in list(rooms):
        touch(room)  # it may have moved away unnoticed
    for method, path, body in [("DELETE", room_path(room), None) for room in list(rooms)] + [("POST", "/v1/health", {"ttl_ms": 0})]:
        try:
            ask(method, path, body)
        except FAILURES as err:
            if getattr(err, "code", "") not in ("no_store", "no_pin"):
                print(f"stop: {err}", file=sys.stderr)


def main():
    server = Server((LISTEN.hostname, LISTEN.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop, args=[server]).start())
    workers = [threading.Thread(target=work) for work in (keep, report)]
    for worker in workers:
        worker.start()
    threading.Thread(target=follow, daemon=True).start()
    server.serve_forever()
    server.server_close()
    stopping.set()
    for worker in workers:
        worker.join()
    release()


if __name__ == "__main__":
    main()
