// Moving a group, with what it will skip or repeat said before.

import { h } from "./dom.js";
import { get, post, segment } from "./server.js";
import { many } from "./format.js";
import { confirm, input } from "./dialog.js";

export function seek(page, queue, group) {
  const path = `/api/v1/consumer-groups/${segment(group)}/queues/${segment(queue)}/seek`;
  confirm(page, {
    title: `Seek: group ${group} of ${queue}`, button: "Seek",
    text: "Where shall it go on? Leases that it has now are given up.",
    fields: [
      h("label", { class: "field" }, h("span", {}, "To"), h("select", { name: "to" }, h("option", { value: "end" }, "the end: skip everything"), h("option", { value: "begin" }, "the beginning: repeat everything"), h("option", { value: "time" }, "a time"), h("option", { value: "seq" }, "a seq"))),
      input("time", "Time (if chosen)", { type: "datetime-local", step: "1" }),
      input("seq", "Seq (if chosen)", { type: "number", min: "1" }),
    ],
    preview: async (values) => {
      const target = targetOf(values);
      if (!target) return null;
      const found = await get(path, target);
      const held = found.leased ? ` ${many(found.leased, "message")} that a consumer holds now will be refused as answers.` : "";
      return `It will skip ${many(found.skipped, "message")} and deliver ${many(found.repeated, "message")} again; ${many(found.waitingAfter, "message")} wait then.${held}`;
    },
    run: async (values) => `${many((await post(path, targetOf(values))).partitions, "partition")} moved.`,
  });
}

function targetOf({ to, time, seq }) {
  if (to === "end") return { toEnd: true };
  if (to === "begin") return { seq: 1 };
  if (to === "time") return time ? { timestamp: new Date(time).toISOString() } : null;
  return seq ? { seq: Number(seq) } : null;
}
