import type { ComponentType } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Client } from "../api/client";
import { ServerClock } from "../clock/server-clock";
import { Live } from "../fleet/live";
import { BeamsPage } from "../beam/beams-page";
import { MapPage } from "../map/map-page";
import { TerminalsPage } from "../terminal/terminals-page";
import { LiveContext } from "./context";
import { Header } from "./header";
import { later } from "./later";
import { routeOf, type Route } from "./route";
import { keepToken, keptToken, tokenOfAddress } from "./session";
import { SignIn } from "./sign-in";

// What is not seen first is loaded when it is: the first script has to fit one flight of TCP.
const EventsPage = later(() => import("../events/events-page"), "the events");

const PAGES: Record<string, ComponentType<{ route: Route }>> = {
  map: MapPage,
  beams: BeamsPage,
  terminals: TerminalsPage,
  events: EventsPage,
};

export function App() {
  const [token, setToken] = useState(() => tokenOfAddress() ?? keptToken());
  const [reason, setReason] = useState<string>();

  const signOut = (why: string | undefined) => {
    keepToken(undefined);
    setToken(undefined);
    setReason(why);
  };
  const signIn = (given: string) => {
    setReason(undefined);
    setToken(given);
  };
  useEffect(() => {
    // A link with a token may be opened in a tab that has the console already.
    const take = () => {
      const brought = tokenOfAddress();
      if (brought !== undefined) signIn(brought);
    };
    addEventListener("hashchange", take);
    return () => removeEventListener("hashchange", take);
  }, []);
  if (token === undefined) return <SignIn reason={reason} onToken={signIn} />;
  return <SignedIn key={token} token={token} onSignOut={signOut} />;
}

interface Props {
  token: string;
  onSignOut: (reason: string | undefined) => void;
}

function SignedIn({ token, onSignOut }: Props) {
  const live = useMemo(() => {
    const clock = new ServerClock();
    return new Live(new Client(token, clock), clock, onSignOut);
  }, [token]);
  useEffect(() => {
    keepToken(token);
    live.start();
    return () => live.close();
  }, [live]);
  const route = useRoute();
  const Page = PAGES[route.page] ?? MapPage;
  return (
    <LiveContext.Provider value={live}>
      <a class="skip" href="#content" onClick={focusContent}>
        To the content
      </a>
      <Header page={route.page} onSignOut={() => onSignOut(undefined)} />
      <main id="content" tabIndex={-1}>
        <Page route={route} />
      </main>
    </LiveContext.Provider>
  );
}

function focusContent(event: Event): void {
  // The address' part after # is the page's.
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const change = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}
