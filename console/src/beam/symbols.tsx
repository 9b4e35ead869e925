import type { ComponentChildren } from "preact";

/** The paper's symbols (Oh, Kim and Kim; `dama/README.md`), in the words of this page. */
export function Symbols() {
  return (
    <details>
      <summary>Symbols of the paper, and the words here</summary>
      <dl class="facts">
        <Symbol of="T" at="r">how long the others lend, before a terminal is blocked</Symbol>
        <Symbol of="T" at="t">how long it is blocked</Symbol>
        <Symbol of="D" at="u">what it cannot use while blocked: its fair share then. It borrows as much before</Symbol>
        <Symbol of="D" at="b">the rate that each of the others lends meanwhile</Symbol>
        <Symbol of="D" at="r">what each of them is repaid while it is blocked: the amount that it has lent</Symbol>
      </dl>
      <p class="note">With less time or capacity than that takes, less is lent; the plan above has the amounts.</p>
    </details>
  );
}

function Symbol({ of, at, children }: { of: string; at: string; children: ComponentChildren }) {
  return (
    <>
      <dt>
        <var>
          {of}
          <sub>{at}</sub>
        </var>
      </dt>
      <dd>{children}</dd>
    </>
  );
}
