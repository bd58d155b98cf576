// The page: one participant, where it is, and what each move did to the pictures.
import { Call } from "./call.mjs";
import * as device from "./device.mjs";
import { Player, element, tooLong } from "./player.mjs";

const $ = (id) => document.getElementById(id);
const form = $("join");
const query = new URLSearchParams(location.search);
let [call, media, doors] = [null, new MediaStream(), [location.host]];
let turn = 0; // counts joins and leaves
let [move, stills] = [null, null]; // the last lines about a move, and about gaps without one

const player = new Player($("pictures"), $("waiting"), {
  played: (link, still) => {
    if (move?.link === link && still) {
      move.still = Math.max(move.still ?? 0, still);
      const ms = Math.round(move.still);
      const gap = move.still < tooLong ? `no gap: ${ms} ms between two frames` : `the picture stood still for ${ms} ms`;
      move.said.textContent = `${move.text}; ${gap}.`;
      move.said.classList.toggle("bad", move.still >= tooLong);
    }
    tidy();
  },
  still: (name, ms) => {
    if (!stills || stills.said !== $("breaks").querySelector("span")) stills = { times: 0, worst: 0, said: say("", "bad") };
    [stills.times, stills.worst] = [stills.times + 1, Math.max(stills.worst, ms)];
    stills.said.textContent = `Without a move of this page: ${stills.times > 1 ? `${stills.times} gaps, up to` : "a gap of"} ${Math.round(stills.worst)} ms (${name}).`;
  },
});

function say(text, name = "") {
  const [line, said] = [element("li", ""), element("span", name, text)];
  line.append(element("time", "", new Date().toLocaleTimeString("en-GB")), said);
  $("breaks").prepend(line);
  while ($("breaks").children.length > 12) $("breaks").lastChild.remove();
  return said;
}

const state = (text, level) => { [$("state").textContent, $("state").dataset.level] = [text, level]; };

// tidy lets go of the older links as soon as each picture comes by the newest one.
function tidy() {
  if (!call?.newest || call.newest.over || !player.plays(call.newest)) return;
  player.hear(call.newest);
  call.tidy();
}

async function join() {
  leave();
  const [room, kind, mine] = [form.elements.room.value, form.elements.device.value, turn];
  let opened;
  try {
    opened = await device.open(kind);
  } catch (err) {
    return mine === turn && state(`No camera: ${err.message}`, "bad");
  }
  if (mine !== turn) return device.close(opened); // the user has joined again, or left, while the camera was asked for
  media = opened;
  [$("own").srcObject, $("mine").hidden] = kind === "watch" ? [null, true] : [media, false];
  [$("leave").disabled, $("breaks").textContent] = [false, ""];
  state("Connecting", "warn");
  call = new Call(room, media, () => doors, {
    settled: (link, why) => {
      const from = move?.link.home.to;
      const way = from === link.home.to ? `Again at ${from}` : `From ${from} to ${link.home.to}`;
      const text = from ? `${way} (${why})` : `In ${link.home.room} at ${link.home.to}`;
      move = { link, text, said: say(`${text}.`) };
      player.mark(link.home.to);
      [$("room").textContent, $("node").textContent, $("epoch").textContent] = [link.home.room, link.home.to, link.epoch];
      state("In the call", "good");
      tidy();
    },
    asking: (text) => state(text, "warn"),
    gaveUp: (err) => state(err.message, "bad"),
    track: (link, track) => player.receive(link, track),
    ended: (link) => player.end(link),
  });
}

function leave() {
  turn++;
  call?.leave();
  device.close(media);
  player.clear();
  [call, move, media] = [null, null, new MediaStream()];
  [$("own").srcObject, $("mine").hidden, $("leave").disabled] = [null, true, true];
  for (const id of ["room", "node", "epoch"]) $(id).textContent = "–";
  state("Not in a call", "");
}

form.addEventListener("submit", (e) => { e.preventDefault(); join(); });
$("leave").addEventListener("click", leave);
$("sound").addEventListener("change", () => player.hear(call?.newest, $("sound").checked));
$("reset").addEventListener("click", () => { player.longest = 0; });
addEventListener("pagehide", leave);

setInterval(() => {
  tidy();
  player.draw(call?.newest && !call.newest.over);
  $("longest").textContent = Math.round(player.longest);
  $("alone").hidden = !call?.newest || $("pictures").children.length > 0;
}, 200);

// overview keeps the list of nodes, by the server of this page, or by another one when that has ended.
async function overview() {
  for (const door of new Set([location.host, ...doors])) {
    try {
      const answer = await fetch(`${location.protocol}//${door}/overview`, { signal: AbortSignal.timeout(1000) });
      const { nodes, faults, doing } = await answer.json();
      if (nodes?.length) doors = nodes.map((n) => n.addr);
      demo(faults, doing);
      break;
    } catch { /* the next one */ }
  }
  setTimeout(overview, 1000);
}

// demo shows what the faults of the demo did to its own calls.
function demo(faults, doing = "") {
  if (!faults && !doing) return;
  $("demo").hidden = false;
  if ($("doing").textContent !== doing) $("doing").textContent = doing; // a screen reader reads it again when it is set
  const rows = (faults ?? []).map((f) => {
    const row = element("tr", "");
    const head = element("th", "", f.what);
    head.scope = "row";
    const cell = (label, text) => Object.assign(element("td", "", text), { title: label });
    row.append(head, cell("Rooms moved", `${f.moved} of ${f.rooms}${f.gave_up ? `; ${f.gave_up} clients gave up` : ""}`), cell("Sound", f.sound.join(" / ")), cell("Picture", f.picture.join(" / ")), cell("Where the time went", (f.parts ?? []).map((p) => `${p.name} ${p.ms}`).join(", ")));
    for (const td of row.querySelectorAll("td")) td.dataset.label = td.title;
    return row;
  });
  if (rows.length !== $("faults").children.length) $("faults").replaceChildren(...rows);
}

form.elements.room.value = query.get("room") ?? "page";
for (const kind of ["fake", "watch"]) if (query.has(kind)) form.elements.device.value = kind;
leave();
overview();
if (query.has("room")) join();
