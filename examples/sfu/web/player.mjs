// Plays what comes by links, and measures how long each picture stands still.

export const tooLong = 100; // ms between two frames, of which 30 come a second
const shown = 60_000; // ms on a strip
const fresh = 1000; // ms for which a picture counts as one that plays
const gone = 10_000; // ms after which its publisher has left, unless the connection is lost

// element makes an element with a text.
export function element(tag, name, text = "") {
  const e = document.createElement(tag);
  e.className = name;
  e.textContent = text;
  return e;
}

export class Player {
  longest = 0; // ms between two frames, of all pictures, since it was set to 0
  #list; // where pictures are shown
  #waiting; // where they are until their first frame
  #on; // played(link, still): the first frame by a link; still(name, ms): a gap without a move
  #tiles = [];
  #marks = []; // moves: { at, text }
  #sounds = new Map(); // by link
  #loud = false;
  #link; // that is heard

  constructor(list, waiting, on) {
    [this.#list, this.#waiting, this.#on] = [list, waiting, on];
    document.addEventListener("visibilitychange", () => { // a hidden page gets no frames
      for (const tile of this.#tiles) tile.last = document.hidden ? undefined : tile.last;
    });
  }

  // receive takes a track, which is silent until its slot has a publisher.
  receive(link, track) {
    if (track.kind === "audio") {
      const sound = this.#sounds.get(link) ?? new Audio();
      if (!sound.srcObject) [sound.srcObject, sound.autoplay, sound.muted] = [new MediaStream(), true, true];
      sound.srcObject.addTrack(track);
      this.#sounds.set(link, sound);
      return;
    }
    const slot = link.slots = (link.slots ?? 0) + 1;
    track.addEventListener("unmute", () => {
      const video = element("video", "");
      [video.muted, video.autoplay, video.playsInline] = [true, true, true];
      video.srcObject = new MediaStream([track]);
      video.link = link;
      this.#waiting.append(video);
      video.play().catch(() => {}); // it was removed before
      const next = (_, frame) => {
        this.#frame(slot, video, frame.presentationTime);
        if (video.isConnected) video.requestVideoFrameCallback(next);
      };
      video.requestVideoFrameCallback(next);
    }, { once: true });
  }

  // #frame notes a frame. The first one of a newer link replaces the picture of the older one.
  #frame(slot, video, now) {
    if (!video.isConnected || video.link.over) return; // the end of a link shows its last frame once more
    const tile = this.#tiles.find((t) => t.slot === slot) ?? this.#open(slot, now);
    const moved = tile.video !== video;
    if (moved && tile.video && video.link.order < tile.video.link.order) return;
    const still = tile.last === undefined ? 0 : now - tile.last;
    if (still >= tooLong) tile.gaps.push({ from: tile.last, to: now });
    this.longest = Math.max(this.longest, still);
    [tile.last, tile.frames] = [now, tile.frames + 1];
    if (moved) {
      if (tile.video) tile.video.replaceWith(video);
      else tile.box.prepend(video);
      [tile.video, video.ariaLabel] = [video, tile.name];
      tile.box.dataset.node = video.link.home.to;
      this.#on.played(video.link, still);
    } else if (still >= tooLong) {
      this.#on.still(tile.name, still);
    }
  }

  #open(slot, born) {
    const tile = { slot, born, name: `Picture ${slot}`, gaps: [], frames: 0, box: element("li", "picture"), strip: element("div", "strip"), note: element("p", "note") };
    tile.strip.role = "img";
    const side = element("div", "side");
    side.append(element("h3", "", tile.name), tile.strip, tile.note);
    tile.box.append(side);
    this.#list.append(tile.box);
    this.#tiles.push(tile);
    return tile;
  }

  // plays reports whether each picture that plays does so by a link.
  plays(link) {
    const now = performance.now();
    return this.#tiles.every((t) => t.video.link === link || !(now - t.last < fresh));
  }

  // mark puts a move on the strips.
  mark(text) { this.#marks.push({ at: performance.now(), text }); }

  // hear plays the sound of one link, if the user wants to hear any.
  hear(link, loud = this.#loud) {
    [this.#link, this.#loud] = [link, loud];
    for (const [of, sound] of this.#sounds) sound.muted = !loud || of !== link;
  }

  // end forgets a link, whose last pictures stay.
  end(link) {
    this.#sounds.get(link)?.pause();
    this.#sounds.delete(link);
    for (const video of this.#waiting.querySelectorAll("video")) if (video.link === link) video.remove();
  }

  clear() {
    for (const tile of this.#tiles.splice(0)) tile.box.remove();
    this.#waiting.replaceChildren();
    [this.#marks, this.longest] = [[], 0];
  }

  // draw draws the strips; connected says that the newest link is up.
  draw(connected) {
    const now = performance.now();
    const at = (time) => `${Math.max(0, Math.min(100, 100 * (1 - (now - time) / shown)))}%`;
    const place = (e, from, to) => {
      e.style.left = at(from);
      if (to) e.style.width = `calc(${at(to)} - ${at(from)})`;
      return e;
    };
    this.#marks = this.#marks.filter((m) => now - m.at < shown);
    for (const tile of this.#tiles.filter((t) => connected && !document.hidden && now - t.last > gone)) {
      if (!tile.video.link.over) this.#waiting.append(tile.video); // its slot, and so its track, may be another publisher's next
      tile.box.remove();
      this.#tiles.splice(this.#tiles.indexOf(tile), 1);
    }
    for (const tile of this.#tiles) {
      tile.gaps = tile.gaps.filter((g) => now - g.to < shown);
      const open = now - tile.last >= tooLong ? [{ from: tile.last, to: now }] : [];
      const gaps = [...tile.gaps, ...open];
      const parts = [place(element("i", "good"), tile.born, now)];
      const [width, centers] = [60 / tile.strip.clientWidth * shown, []]; // of labels, as times
      for (const gap of gaps.sort((a, b) => b.to - b.from - (a.to - a.from))) {
        parts.push(place(element("i", "gap"), gap.from, gap.to));
        const late = now - gap.from < shown / 3;
        const center = gap.from + (late ? -width : width) / 2;
        if (centers.some((c) => Math.abs(c - center) < width)) continue; // there is no room
        centers.push(center);
        parts.push(place(element("b", late ? "late" : "", `${Math.round(gap.to - gap.from)} ms`), gap.from));
      }
      for (const m of this.#marks) parts.push(place(element("s", now - m.at < shown / 3 ? "late" : "", m.text), m.at));
      tile.strip.replaceChildren(...parts);
      const worst = Math.max(0, ...gaps.map((g) => g.to - g.from));
      const said = worst ? `${gaps.length} ${gaps.length > 1 ? "gaps" : "gap"} in the last minute, ${Math.round(worst)} ms at most` : "no gap in the last minute";
      tile.strip.ariaLabel = `${tile.name}: ${said}`;
      tile.note.textContent = said;
      tile.box.dataset.frames = tile.frames;
    }
  }
}
