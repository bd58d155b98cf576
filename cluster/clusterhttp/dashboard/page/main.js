import { Demo } from "./demo.js";
import { $ } from "./dom.js";
import { Evacuation } from "./evacuation.js";
import { EventLog } from "./events.js";
import { Feed } from "./feed.js";
import { LinkState } from "./link.js";
import { Lookup } from "./lookup.js";
import { PartitionMap } from "./map.js";
import { MemberTable } from "./members.js";
import { Model } from "./model.js";
import { Operate } from "./operate.js";
import { Summary } from "./summary.js";

const page = document.documentElement;
const model = new Model();
model.ttl = Number(page.dataset.leaseTtlMs) || model.ttl;
const feed = new Feed(model);
const map = new PartitionMap(model);
new MemberTable(model);
new Summary(model);
new EventLog(model);
new LinkState(model);
new Lookup(model, (partition) => map.show(partition));
new Operate(model, () => feed.now());
if ("rooms" in page.dataset) new Evacuation(model).start();
if ("demo" in page.dataset) new Demo(model).start();
feed.start();

$("theme").value = page.dataset.theme ?? "";
$("theme").addEventListener("change", ({ target: { value } }) => {
  if (value) page.dataset.theme = value;
  else delete page.dataset.theme;
  try {
    localStorage.setItem("roost-theme", value);
  } catch {
    // The choice lasts for this visit.
  }
  map.repaint();
});
