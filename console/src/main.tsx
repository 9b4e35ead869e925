import { render } from "preact";
import { App } from "./shell/app";
import "./shell/shell.css";

const root = document.getElementById("console");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
