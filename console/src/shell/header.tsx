import { useState } from "preact/hooks";
import type { Session } from "../api/types";
import { useLive, useTick } from "./context";
import { seconds, utc } from "./format";
import { hashOf } from "./route";

const PAGES = ["map", "beams", "terminals", "gateways", "events", "alerts", "settings"];

/** The title of a page, which is its name in the address. */
export function titleOf(page: string): string {
  return page.charAt(0).toUpperCase() + page.slice(1);
}

interface Props {
  page: string;
  /** Who is signed in, once known. */
  session: Session | undefined;
  onSignOut: () => void;
}

export function Header({ page, session, onSignOut }: Props) {
  const pages = session?.role === "administrator" ? [...PAGES, "access"] : PAGES;
  return (
    <header>
      <span class="brand">Underpass</span>
      <nav aria-label="Pages">
        {pages.map((name) => (
          <a key={name} href={hashOf(name)} aria-current={page === name ? "page" : undefined}>
            {titleOf(name)}
          </a>
        ))}
      </nav>
      <Connection />
      {session?.kind === "user" && (
        <a href={hashOf("account")} aria-current={page === "account" ? "page" : undefined} aria-label={`Account of ${session.name}`}>
          {session.name}
        </a>
      )}
      <ThemeButton />
      <button type="button" onClick={onSignOut}>
        Sign out
      </button>
    </header>
  );
}

/** Shows whether the page is live, and the service's time. */
function Connection() {
  const live = useLive();
  useTick();
  const { following } = live;
  const { phase, reason } = following;
  const now = performance.now();
  const since = phase === "live" ? following.quietSince(now) : following.lostAt;
  let [text, state] = phase === "live" ? ["live", "up"] : ["connecting", "waiting"];
  // A stream that is live but quiet has no reason to show.
  if (since !== undefined) [text, state] = [`not live: ${reason || "nothing comes"}`, "down"];
  else if (phase === "live" && following.mustRead) [text, state] = ["reading", "waiting"];
  return (
    <span class="connection">
      <span class={`badge ${state}`} role="status">
        {text}
      </span>
      {/* Outside of the status: a screen reader would read out each change. */}
      {since !== undefined && <span>for {seconds(now - since)}</span>}
      <time>{live.clock.known && `${utc(live.now())} UTC`}</time>
    </span>
  );
}

/** The page applies it before anything is drawn. */
const THEME_KEY = "underpass-theme";

function ThemeButton() {
  const { dataset } = document.documentElement;
  const [theme, setTheme] = useState(dataset.theme);
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const change = () => {
    const next = dark ? "light" : "dark";
    dataset.theme = next;
    setTheme(next);
    try {
      localStorage.setItem(THEME_KEY, next);
    } catch {
      // Storage is off: the theme lasts as long as the page.
    }
  };
  return (
    <button type="button" onClick={change}>
      {dark ? "Light" : "Dark"}
    </button>
  );
}
