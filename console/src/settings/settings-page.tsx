/** What is set of many at once: terminals by a file, changes in stages, and maps. */

import { hashOf, type Route } from "../shell/route";
import { Maps } from "./maps";
import { Rollouts } from "./rollouts";
import { TerminalFile } from "./terminal-file";

const PARTS = {
  terminals: ["Terminals in bulk", TerminalFile],
  rollouts: ["Rollouts", Rollouts],
  maps: ["Maps", Maps],
} as const;

export default function SettingsPage({ route }: { route: Route }) {
  const part = route.of !== undefined && route.of in PARTS ? (route.of as keyof typeof PARTS) : "terminals";
  const [title, Part] = PARTS[part];
  return (
    <div class="page">
      <nav aria-label="Settings">
        {Object.entries(PARTS).map(([name, [text]]) => (
          <a key={name} href={hashOf("settings", name)} aria-current={name === part ? "page" : undefined}>
            {text}
          </a>
        ))}
      </nav>
      <h1>{title}</h1>
      <Part />
    </div>
  );
}
