/** The settings: terminals by file, new nodes, beams, rollouts, maps, and slices. */

import { Parts } from "../shell/parts";
import type { Route } from "../shell/route";
import { Beams } from "./beams";
import { Enrolments } from "./enrolments";
import { Maps } from "./maps";
import { Rollouts } from "./rollouts";
import { Slices } from "./slices";
import { TerminalFile } from "./terminal-file";

const PARTS = {
  terminals: ["Terminals in bulk", TerminalFile],
  enrolments: ["Enrolments", Enrolments],
  beams: ["Beams", Beams],
  rollouts: ["Rollouts", Rollouts],
  maps: ["Maps", Maps],
  slices: ["Slices", Slices],
} as const;

export default function SettingsPage({ route }: { route: Route }) {
  return <Parts label="Settings" route={route} parts={PARTS} />;
}
