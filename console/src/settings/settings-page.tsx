/** What is set of many at once: terminals by a file, and maps. */

import { Parts } from "../shell/parts";
import type { Route } from "../shell/route";
import { Maps } from "./maps";
import { TerminalFile } from "./terminal-file";

const PARTS = { terminals: ["Terminals in bulk", TerminalFile], maps: ["Maps", Maps] } as const;

export default function SettingsPage({ route }: { route: Route }) {
  return <Parts label="Settings" route={route} parts={PARTS} />;
}
