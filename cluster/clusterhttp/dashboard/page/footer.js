// The version of this node's agent, for how long it has run, and where its documentation is.

import { $, attribute, say, span } from "./dom.js";

const pages = "https://github.com/roost-cluster/roost/blob";

export class Footer {
  constructor(model) {
    model.listen((kind) => {
      if (kind !== "change") return;
      const version = model.members.find((m) => m.id === model.self)?.roost_version ?? "";
      const uptime = model.stats?.uptime_ms;
      say($("about"), ["roost", version, uptime === undefined ? "" : `up ${span(uptime)}`].filter(Boolean).join(" · "));
      attribute($("docs"), "href", `${pages}/${/^v\d+\.\d+\.\d+$/.test(version) ? version : "main"}/docs/README.md`);
    });
  }
}
