import { Demo } from "./demo.js";
import { $ } from "./dom.js";
import { Drawer } from "./drawer.js";
import { Evacuation } from "./evacuation.js";
import { EventLog } from "./events.js";
import { Feed } from "./feed.js";
import { Footer } from "./footer.js";
import { Health } from "./health.js";
import { LinkState } from "./link.js";
import { Lookup } from "./lookup.js";
import { PartitionMap } from "./map.js";
import { MemberTable } from "./members.js";
import { Model } from "./model.js";
import { Operate } from "./operate.js";
import { colour } from "./palette.js";
import { Tabs } from "./tabs.js";
import { Tiles } from "./tiles.js";

const page = document.documentElement;
const model = new Model();
model.listen((kind) => {
  if (kind === "change") colour(model.members.map((m) => m.id));
});
const feed = new Feed(model);
const map = new PartitionMap(model);
const tabs = new Tabs(() => {
  map.repaint();
  model.emit("change");
});
const showMap = () => {
  tabs.show($("tab-map"));
  $("tab-map").focus();
  $("map").scrollIntoView({ block: "center" });
};
const drawer = new Drawer(model, showMap);
new MemberTable(model, (id) => drawer.open(id));
new Tiles(model);
new EventLog(model);
new LinkState(model);
new Lookup(model, (partition, reveal) => {
  if (reveal) showMap();
  map.show(partition);
});
new Operate(model, () => feed.now());
new Evacuation(model);
new Footer(model);
new Health(model).start();
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
