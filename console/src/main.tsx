import { render } from "preact";
import { App } from "./shell/app";
import { applyTheme } from "./shell/header";
import "./shell/shell.css";

applyTheme();
const root = document.getElementById("console");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
