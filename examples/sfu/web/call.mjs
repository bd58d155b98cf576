// A participant of a room, who follows it from node to node. client.go does the same in Go.
import { Driver, Refused } from "/reconnect.mjs";

const linger = 10_000; // for which a node serves a room that has moved, as in room.go
const slots = 8; // tracks of sound, and of pictures, that a participant can receive
const secure = location.protocol === "https:" ? "s" : "";
const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

export class Call {
  #room;
  #media; // what this participant sends
  #doors; // returns the nodes to ask
  #on; // settled(link, why), asking(why), gaveUp(error), track(link, track), ended(link)
  #route; // to the room, or to a relay of it
  #links = []; // the oldest first
  #newest = null; // also when it has ended
  #why = "joined";
  #made = 0;
  #over = false;

  constructor(room, media, doors, on) {
    [this.#room, this.#media, this.#doors, this.#on] = [room, media, doors, on];
    this.#to(room);
    this.#seek(null);
  }

  get newest() { return this.#newest; }

  leave() {
    this.#over = true;
    this.#route.driver.close();
    for (const link of [...this.#links]) link.close();
  }

  // #to begins a route: a Driver is for one room, and a relay is a room by itself.
  #to(room) {
    this.#route?.driver.close();
    const driver = new Driver({
      connect: (home, signal) => this.#connect(home, signal),
      resolve: (name, signal) => this.#resolve(name, signal),
      pace: { spread: 50 }, // a room of this page has some dozens of participants. The default, 500 ms, is for thousands
      attemptTimeout: 5000,
    });
    this.#route = { room, driver };
    return this.#route;
  }

  // #follow takes a directive that came by a link: of its room or relay, or to another relay.
  #follow(link, home) {
    let route = this.#route;
    if (home.room !== route.room) {
      if (link.home.room !== route.room) return; // it went to another relay since
      route = this.#to(home.room);
    }
    const here = this.#newest?.home;
    if (here?.room !== home.room || here.epoch < home.epoch) { // otherwise it is old news
      this.#why = `directive: ${home.reason || "to another node"}`;
      this.#on.asking(`Moving to ${home.to}`);
    }
    route.driver.follow(home).catch(() => {}); // if it gives up, the end of the old link is news
  }

  // #seek returns when there is a newer link.
  async #seek(link) {
    do {
      const route = this.#route;
      const lost = link?.home.room === route.room ? link.home : { room: route.room };
      try {
        await route.driver.lost(lost);
      } catch (err) {
        if (!this.#over && route === this.#route) { // otherwise there is another route
          this.#on.gaveUp(err);
          await sleep(1000);
          if (!this.#over && route === this.#route) this.#to(this.#room);
        }
      }
      await sleep(0);
    } while (!this.#over && this.#newest === link && (!link || link.over));
  }

  // #resolve asks nodes where the room is. The lost one is the last to know.
  async #resolve(room, signal) {
    const last = this.#newest?.home.room === room ? this.#newest.home : null;
    const all = this.#doors().map((door) => [Math.random(), door]).sort().map(([, door]) => door);
    const others = all.filter((door) => door !== last?.addr);
    let why = new Error("no node to ask");
    for (const door of others.length ? others : all) {
      try {
        return await ask(door, room, last, AbortSignal.any([signal, AbortSignal.timeout(1300)]));
      } catch (err) {
        signal.throwIfAborted();
        why = err;
      }
    }
    throw why;
  }

  // #connect makes a link. The former one stays until the new one plays: see tidy.
  async #connect(home, signal) {
    const link = new Link(home, ++this.#made, this.#media);
    signal.addEventListener("abort", () => link.close());
    link.pc.addEventListener("track", ({ track }) => this.#on.track(link, track));
    link.directed = (to) => this.#follow(link, to);
    try {
      await link.up();
      if (link.over) throw new Error("the connection has ended");
    } catch (err) {
      link.close();
      this.#on.ended(link);
      throw err;
    }
    link.gone = () => this.#gone(link);
    this.#links.push(link);
    this.#newest = link;
    this.#on.settled(link, this.#why);
  }

  #gone(link) {
    if (link.over) {
      this.#links = this.#links.filter((l) => l !== link);
      this.#on.ended(link);
    }
    if (this.#over || link !== this.#newest) return;
    this.#why = link.over ? "connection ended" : "connection silent";
    this.#on.asking(`${link.home.to} is lost: asking the others`);
    this.#seek(link);
  }

  // tidy ends the older links. The caller has decoded a frame by the newest one in place of each that plays.
  tidy() {
    for (const link of this.#links) if (link !== this.#newest) link.done();
  }
}

async function ask(door, room, last, signal) {
  const url = (verb) => `${location.protocol}//${door}/${verb}/${encodeURIComponent(room)}`;
  let answer;
  if (last?.epoch) answer = await fetch(url("report"), { method: "POST", body: JSON.stringify(last), signal });
  if (!answer || answer.status === 404) answer = await fetch(url("where"), { signal });
  if (!answer.ok) throw new Error(`${door} answers ${answer.status}`);
  return answer.json();
}

// Link is a connection to a node: a WebSocket for signalling, and a peer connection for media.
class Link {
  over = false;
  silent = false;
  #done = false;

  constructor(home, order, media) {
    [this.home, this.order, this.epoch] = [home, order, home.epoch];
    this.pc = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    const add = (track, kind, direction) => {
      const codec = kind === "audio" ? "audio/opus" : "video/VP8"; // what the nodes forward
      const codecs = RTCRtpReceiver.getCapabilities(kind).codecs.filter((c) => c.mimeType === codec);
      this.pc.addTransceiver(track, { direction }).setCodecPreferences(codecs);
    };
    for (const track of media.getTracks()) add(track, track.kind, "sendonly");
    for (const kind of ["audio", "video"]) for (let i = 0; i < slots; i++) add(kind, kind, "recvonly");
    this.ws = new WebSocket(`ws${secure}://${home.addr}/join/${encodeURIComponent(home.room)}`);
  }

  // up returns when media can flow.
  async up() {
    const [pc, ws] = [this.pc, this.ws];
    let answered = false;
    await new Promise((done, fail) => {
      ws.onopen = async () => {
        await pc.setLocalDescription(); // the node is at one address, and needs none of this side
        if (!this.over) ws.send(JSON.stringify({ offer: pc.localDescription.sdp }));
      };
      ws.onmessage = ({ data }) => {
        const { answer, home } = JSON.parse(data);
        if (answer) {
          [answered, this.epoch] = [true, home.epoch];
          pc.setRemoteDescription({ type: "answer", sdp: answer }).catch(fail);
        } else if (home) {
          this.directed(home);
        }
      };
      ws.onclose = () => {
        const why = `${this.home.to} ended the connection`;
        fail(answered ? new Error(why) : new Refused(why));
        this.close();
      };
      pc.onconnectionstatechange = () => {
        if (pc.connectionState === "connected") done();
        if (pc.connectionState === "failed") this.close(); // closes the WebSocket, too
      };
      pc.oniceconnectionstatechange = () => {
        if (pc.iceConnectionState !== "disconnected") return;
        this.silent = true; // also when ICE recovers: by then, another link is on its way
        this.gone?.();
      };
    });
  }

  // done notes that a newer link serves this participant. The node closes this one when no other
  // participant needs it.
  done() {
    if (this.#done) return;
    this.#done = true;
    if (this.silent || this.ws.readyState !== WebSocket.OPEN) return this.close();
    this.ws.send(JSON.stringify({ done: true }));
    setTimeout(() => this.close(), linger);
  }

  close() {
    if (this.over) return;
    this.over = true;
    this.ws.close();
    this.pc.close();
    this.gone?.();
  }
}
