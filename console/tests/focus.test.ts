import { afterEach, expect, test, vi } from "vitest";
import { focusAround } from "../src/shell/focus";

afterEach(() => vi.unstubAllGlobals());

/** A page with a button in a table, and the content around both; tells what gets the focus. */
function made() {
  const focused: string[] = [];
  const element = (name: string) => ({ name, isConnected: true, focus: () => void focused.push(name) });
  const [body, content, table] = [element("body"), element("content"), element("table")];
  const button = { ...element("button"), parentElement: { closest: () => table } };
  const page = { body, activeElement: button as object, getElementById: () => content };
  vi.stubGlobal("document", page);
  return { page, body, table, button, focused };
}

const settled = () => new Promise<void>((done) => setTimeout(done));

test("the focus of a button that is gone goes to the table around it, else to the content", async () => {
  for (const isTableLeft of [true, false]) {
    const { page, body, table, button, focused } = made();
    const settle = focusAround();
    button.isConnected = false;
    table.isConnected = isTableLeft;
    page.activeElement = body;
    settle();
    await settled();
    expect(focused).toEqual([isTableLeft ? "table" : "content"]);
  }
});

test("the focus stays where the button stays, or where the user has gone meanwhile", async () => {
  const { page, button, focused } = made();
  focusAround()();
  const settle = focusAround();
  button.isConnected = false;
  page.activeElement = { name: "a field elsewhere" };
  settle();
  await settled();
  expect(focused).toEqual([]);
});
