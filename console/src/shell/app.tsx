import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Client, type Credential } from "../api/client";
import type { Session } from "../api/types";
import { ServerClock } from "../clock/server-clock";
import { CUT, Live } from "../fleet/live";
import { MapPage } from "../map/map-page";
import { LiveContext, SessionContext } from "./context";
import { Header, titleOf } from "./header";
import { later, loadSmallParts } from "./later";
import { routeOf, type Route } from "./route";
import { keepToken, keepUser, keptToken, mayBeSignedIn, tokenOfAddress } from "./session";
import { showSignIn } from "./sign-in";

// Pages other than the first are loaded later: the first script must fit TCP's initial window.
const BeamsPage = later(() => import("../beam/beams-page"));
const TerminalsPage = later(() => import("../terminal/terminals-page"));
const EventsPage = later(() => import("../events/events-page"));
const AlertsPage = later(() => import("../alerts/alerts-page"));
const SettingsPage = later(() => import("../settings/settings-page"));
const AccessPage = later(() => import("../access/access-page"));
const AccountPage = later(() => import("../account/account-page"));

const PAGES: Record<string, ComponentType<{ route: Route }>> = {
  map: MapPage,
  beams: BeamsPage,
  terminals: TerminalsPage,
  gateways: TerminalsPage,
  events: EventsPage,
  alerts: AlertsPage,
  settings: SettingsPage,
  access: AccessPage,
  account: AccountPage,
};

const ASK_AGAIN_MS = 5_000;

/** `undefined` if no one is signed in. A user who may have a session counts as signed in until refused. */
function whoAtFirst(): Credential | undefined {
  const token = tokenOfAddress() ?? keptToken();
  return token === undefined ? (mayBeSignedIn() ? { csrf: "" } : undefined) : { token };
}

export function App() {
  const [who, setWho] = useState(whoAtFirst);
  const [reason, setReason] = useState<string>();

  const signOut = (why: string | undefined) => {
    keepToken(undefined);
    keepUser(false);
    setWho(undefined);
    setReason(why);
  };
  const signIn = (credential: Credential) => {
    if (!("token" in credential)) keepUser(true);
    setReason(undefined);
    setWho(credential);
  };
  useEffect(() => {
    // A user may open a link with a token in a tab that already shows the console.
    const take = () => {
      const brought = tokenOfAddress();
      if (brought !== undefined) signIn({ token: brought });
    };
    addEventListener("hashchange", take);
    return () => removeEventListener("hashchange", take);
  }, []);
  useEffect(() => (who ? undefined : showSignIn(reason, signIn)), [who, reason]);
  if (who === undefined) return null;
  const key = "token" in who ? who.token : who.csrf;
  return <SignedIn key={key} credential={who} onSignIn={signIn} onSignOut={signOut} />;
}

interface Props {
  credential: Credential;
  onSignIn: (credential: Credential) => void;
  onSignOut: (reason: string | undefined) => void;
}

function SignedIn({ credential, onSignIn, onSignOut }: Props) {
  const live = useMemo(() => {
    const clock = new ServerClock();
    return new Live(new Client(credential, clock), clock, onSignOut);
  }, [credential]);
  const [session, setSession] = useState<Session>();
  const known = useRef<Session>(undefined);
  useEffect(() => {
    if ("token" in credential) keepToken(credential.token);
    live.start();
    // Until the caller is known, nothing that needs a role is offered. A refused token also ends the
    // stream of events.
    let due = true;
    const ask = () => void (due && live.client.get<Session>("v1/session").then(take, () => undefined));
    const take = (found: Session) => {
      due = false;
      const before = known.current;
      if (before && !isSame(before, found)) {
        // Somebody else has signed in with this browser: discard all of the previous user.
        onSignIn({ csrf: found.csrf_token ?? "" });
        return;
      }
      live.client.showCsrf(found.csrf_token ?? undefined);
      known.current = found;
      setSession(found);
    };
    ask();
    const again = setInterval(ask, ASK_AGAIN_MS);
    // A new session, of this tab or another, may have replaced the one that ended.
    const off = live.listen(({ kind }) => {
      if (kind !== CUT || !live.client.isOfUser) return;
      due = true;
      ask();
    });
    // The first page's own requests go first.
    const rest = setTimeout(() => {
      live.loadLog().catch(() => undefined);
      loadSmallParts();
    }, 1000);
    return () => {
      clearTimeout(rest);
      clearInterval(again);
      off();
      live.close();
    };
  }, [live]);
  const route = useRoute();
  const Page = PAGES[route.page] ?? MapPage;
  useEffect(() => {
    document.title = [route.of, PAGES[route.page] && titleOf(route.page), "Underpass"].filter(Boolean).join(" · ");
    return () => {
      document.title = "Underpass";
    };
  }, [route.page, route.of]);
  const leave = () => {
    if ("token" in credential) return onSignOut(undefined);
    live.client.delete("v1/session").then(
      () => {
        onSignOut(undefined);
        // Else the provider would sign in the next user without asking.
        if (session?.issuer) location.assign("v1/sign-out");
      },
      (error: Error) => onSignOut(`${error.message}: the session may still be open`),
    );
  };
  return (
    <LiveContext.Provider value={live}>
      <a class="skip" href="#content" onClick={skip}>
        To the content
      </a>
      <Header page={route.page} session={session} onSignOut={leave} />
      <SessionContext.Provider value={session}>
        <main id="content" tabIndex={-1}>
          <Page route={route} />
        </main>
      </SessionContext.Provider>
    </LiveContext.Provider>
  );
}

function isSame(one: Session, other: Session): boolean {
  return one.name === other.name && one.role === other.role && one.tenant === other.tenant && one.issuer === other.issuer;
}

function skip(event: Event): void {
  // The part of the address after # names the page.
  event.preventDefault();
  focusContent();
}

function focusContent(): void {
  document.getElementById("content")?.focus();
}

function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const change = () => {
      const at = document.activeElement;
      setRoute(routeOf(location.hash));
      // The link that was followed may be gone with its page: the keyboard then goes on in the new one.
      setTimeout(() => at?.isConnected || focusContent());
    };
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}
