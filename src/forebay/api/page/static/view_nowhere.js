import { h } from "./dom.js";
export const title = () => "Nothing here";
export const load = async () => ({});
export const draw = () => h("p", {}, "There is no such page. ", h("a", { href: "/" }, "To the journey"));
