// What this participant sends.

export async function open(kind) {
  if (kind === "watch") return new MediaStream();
  if (kind === "fake") return fake();
  if (!navigator.mediaDevices) throw new Error("a browser gives a camera only to pages from https or localhost");
  return navigator.mediaDevices.getUserMedia({ audio: true, video: { width: 640, height: 360, frameRate: 30 } });
}

// fake draws a clock and plays a quiet tone.
function fake() {
  const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 180 });
  const context = canvas.getContext("2d");
  const hue = Math.floor(Math.random() * 360);
  const timer = setInterval(() => {
    const now = new Date();
    context.fillStyle = `hsl(${hue} 45% 28%)`;
    context.fillRect(0, 0, 320, 180);
    context.fillStyle = `hsl(${hue} 60% 60%)`;
    context.fillRect(320 * (now % 2000) / 2000 - 20, 150, 40, 12);
    context.fillStyle = "#fff";
    context.font = "600 34px ui-monospace, monospace";
    context.textAlign = "center";
    context.fillText(now.toISOString().slice(11, 21), 160, 100);
  }, 1000 / 30);
  const stream = canvas.captureStream(30);
  const sound = new AudioContext();
  const [tone, volume, out] = [sound.createOscillator(), sound.createGain(), sound.createMediaStreamDestination()];
  [tone.frequency.value, volume.gain.value] = [220 + hue, 0.05];
  tone.connect(volume).connect(out);
  tone.start();
  if (sound.state === "suspended") addEventListener("pointerdown", () => sound.resume(), { once: true });
  stream.addTrack(out.stream.getAudioTracks()[0]);
  stream.getVideoTracks()[0].end = () => { clearInterval(timer); sound.close(); };
  return stream;
}

export function close(stream) {
  for (const track of stream.getTracks()) {
    track.end?.();
    track.stop();
  }
}
