/**
 * The API's data, as far as the console uses it: docs/control-api.md. Times are RFC 3339 in
 * UTC, rates bit/s, amounts bits of capacity, places WGS 84 degrees.
 */

export type LinkName = "forward" | "return";
export type LinkStateName = "up" | "blocked" | "down";
export type SegmentState = "fair" | "borrowing" | "lending" | "repaying" | "repaid" | "blocked";

export interface Beam {
  id: string;
  name: string;
  forward_capacity_bps: number;
  return_capacity_bps: number;
  one_way_delay_ms: number;
  fair_share: "symbols" | "bits";
  opensand?: string | null;
  satellite?: string | null;
  footprint?: Footprint | null;
}

type Ring = [number, number][];

/** Where a beam is received, as GeoJSON. */
export type Footprint = { type: "Polygon"; coordinates: Ring[] } | { type: "MultiPolygon"; coordinates: Ring[][] };

export interface Terminal {
  node: number;
  beam: string;
  name: string;
  weight: number;
  forward_minimum_bps: number;
  forward_maximum_bps?: number | null;
  return_minimum_bps: number;
  return_maximum_bps?: number | null;
  gateway?: number | null;
  heard_by?: number | null;
  tags?: string[];
}

/** What a node has last said of itself; nothing yet, without `reported`. */
export interface NodeReport {
  node: number;
  role: "terminal" | "gateway";
  version?: string | null;
  certificate_end?: string | null;
  reported?: string | null;
}

/** A proxied connection of a terminal, as its gateway has it: docs/control-protocol.md#questions. */
export interface OpenStream {
  id: number;
  epoch: number;
  target?: string | null;
  class: string;
  state: "early" | "open" | "half-closed-local" | "half-closed-remote" | "draining";
  /** The paths that its bytes may use now; if each flow has its own path, that of its last flow. */
  paths: string[];
  age_ms: number;
  forward_bytes: number;
  return_bytes: number;
  waiting_bytes: number;
  unread_bytes: number;
}

/** A terminal's streams at a moment: the largest of them, and how many are open. */
export interface StreamList {
  terminal: number;
  gateway: number;
  time: string;
  open: number;
  streams: OpenStream[];
}

export type AlertKind = "unheard" | "link-down" | "debt" | "certificate" | "version";

/** Something that is wrong with a terminal by a rule, or was until it was resolved. */
export interface Alert {
  id: number;
  rule: string;
  kind: AlertKind;
  terminal: number;
  link?: LinkName | null;
  text: string;
  since: string;
  resolved?: string | null;
  acknowledged?: string | null;
  acknowledged_by?: string | null;
}

export interface AlertRule {
  id: number;
  name: string;
  kind: AlertKind;
  /** Of all kinds but `version`. */
  limit_s?: number | null;
  /** Of the kind `version`: what terminals are to run. */
  version?: string | null;
  for_s: number;
  keep_firing_for_s: number;
  beam?: string | null;
  revision: number;
}

export interface Rollout {
  id: number;
  name: string;
  state: "running" | "paused" | "stopped" | "aborting" | "aborted" | "done";
  /** The present one, from 1. */
  stage: number;
  /** Terminals of each stage before the last, which has the rest. */
  stages: number[];
  reason?: string | null;
  counts: Record<string, number>;
  /** When its state or the progress of a terminal last changed. */
  changed: string;
  /** Rises with each change of the state. */
  revision: number;
}

export interface RolloutTerminal {
  terminal: number;
  progress: string;
  late: boolean;
  stage?: number | null;
  reason?: string | null;
}

/** What a link was known to carry in 10 s from `start` on. */
export interface Carried {
  start: string;
  /** As a modem or an operator has told it. */
  efficiency?: number | null;
  /** As its node has measured it. */
  capacity_bps?: number | null;
}

export interface AlertTarget {
  id: number;
  name: string;
  url: string;
  last?: string | null;
  last_failure?: string | null;
  /** Only in the answer to its making. */
  secret?: string | null;
}

export type InterventionKind = "freeze" | "rate" | "maintenance" | "withdrawal";

/** An operator's intervention: it overrides the planner for a time. */
export interface Intervention {
  id: number;
  kind: InterventionKind;
  state: "ahead" | "in force" | "ended";
  beam: string;
  terminal?: number | null;
  from: string;
  until: string;
  forward_bps?: number | null;
  return_bps?: number | null;
  obstruction?: string | null;
  entry?: string | null;
  exit?: string | null;
  note?: string | null;
  set_by?: string | null;
  set_at: string;
  revision: number;
}

export interface Position {
  terminal: number;
  time: string;
  longitude: number;
  latitude: number;
  speed_mps?: number | null;
  heading_deg?: number | null;
  accuracy_m?: number | null;
}

export interface LinkState {
  terminal: number;
  link: LinkName;
  state: LinkStateName;
  time: string;
  received: string;
  node: number;
  incarnation: number;
  uptime_ms: number;
  gateway: number;
  path: string;
  offered_bytes: number;
  sent_bytes: number;
  backlogged_bytes: number;
  streams: number;
  rate_bps?: number | null;
  plan?: number | null;
  efficiency: number;
  efficiency_told: boolean;
  capacity_bps?: number | null;
  capacity_reason?: string | null;
  clock_offset_ms?: number | null;
  synchronised: boolean;
  /** Absent from nodes of earlier versions. */
  figures?: LinkFigures | null;
}

/** Figures of a link that plans do not use. */
export interface LinkFigures {
  rtt_ms?: number | null;
  queue_ms: number;
  loss: number;
  stored_bundles: number;
  stored_bytes: number;
  classes: { name: string; streams?: number | null; backlogged_bytes: number }[];
  /** Absent where the beam's path is the only one. */
  other_paths?: OtherPath[] | null;
  /** How many more there are; absent where all are listed. */
  unlisted_paths?: number | null;
}

/** A path to the same node that is not the beam's own. */
export interface OtherPath {
  path: string;
  state: LinkStateName;
  sent_bytes: number;
  rate_bps?: number | null;
  capacity_bps?: number | null;
  rtt_ms?: number | null;
  queue_ms?: number | null;
  loss?: number | null;
}

export interface Blockage {
  state: "predicted" | "passed" | "withdrawn" | "observed";
  terminal: number;
  entry: string;
  exit?: string | null;
  source: "predicted" | "announced" | "plan" | "modem" | "operator" | "probing";
  id?: number | null;
  obstruction?: string | null;
  confidence?: number | null;
  entry_p10?: string | null;
  entry_p90?: string | null;
  exit_p10?: string | null;
  exit_p90?: string | null;
  link?: LinkName | null;
  predicted?: number | null;
  entry_error_ms?: number | null;
  exit_error_ms?: number | null;
}

export interface Road {
  id: string;
  line: [number, number][];
  /** The map's id of what covers it. */
  covered_by: string | null;
  /** Roads that it leads to, and how likely each is taken. */
  onward: [string, number][];
}

export interface Obstruction {
  type: "Feature";
  id: string;
  geometry:
    | { type: "Polygon"; coordinates: [number, number][][] }
    | { type: "MultiLineString"; coordinates: [number, number][][] };
  properties: {
    name: string;
    kind: string;
    certainty: number;
    /** What drives have made of the map's certainty. */
    corrected?: number;
    source: string;
    lost?: number;
    held?: number;
    roads?: Road[];
  };
}

export interface Step {
  from: string;
  rate_bps: number;
}

/** A constant rate over an interval; the amounts are there in the plan of one terminal. */
export interface Segment {
  start: string;
  end: string;
  rate_bps: number;
  state: SegmentState;
  bits?: number;
  fair_bits?: number;
  borrowed_bits?: number;
  lent_bits?: number;
  repaid_bits?: number;
  repaying_bits?: number;
}

export interface Line {
  terminals: number[];
  guaranteed_bps: number;
  efficiency: number;
  segments: Segment[];
}

export interface Plan {
  beam: string;
  link: LinkName;
  plan: number;
  issued: string;
  start: string;
  end: string;
  reason: string;
  capacity: Step[];
  lines: Line[];
}

export interface WhatIf extends Omit<Plan, "plan" | "reason"> {
  totals: { terminal: number; bits: number; fair_bits: number }[];
}

export interface Version {
  plan: number;
  issued: string;
  start: string;
  end: string;
  reason: string;
}

interface Share {
  terminals: number;
  rate_bps: number;
}

/** What the plans give now to the vehicles that the caller sees, and to all others. */
export interface Shares {
  links: { link: LinkName; own: Share; others: Share }[];
}

export interface Balances {
  links: {
    link: LinkName;
    settled_until?: string | null;
    balances: { terminal: number; bits: number; since: string }[];
  }[];
}

export interface Fairness {
  since: string;
  until: string;
  links: {
    link: LinkName;
    jain?: number | null;
    jain_by_weight?: number | null;
    terminals: {
      terminal: number;
      throughput_bps: number;
      sent_bits: number;
      planned_bits: number;
      fair_bits: number;
      blocked_ms: number;
    }[];
  }[];
}

/** A terminal's or gateway's remote settings; anything left out is as in its own configuration. */
export interface NodeSettings {
  classes: Record<string, unknown>[];
  paths: Record<string, unknown>[];
  /** Of a gateway. */
  terminals?: Record<string, unknown>[];
  set: string;
  state: "waiting" | "trial" | "applied" | "rolled-back" | "refused";
  reported?: { received: string; reason?: string | null } | null;
}

/** A key that would be changed, as `class.bulk.weight`; a value that is missing is not set. */
export interface SettingsChange {
  key: string;
  before?: unknown;
  after?: unknown;
}

/** What a document would change of what is set of a node. */
export interface SettingsPreview {
  changes: SettingsChange[];
  /** The document's paths that the terminal has not reported. */
  unreported_paths?: string[] | null;
}

/** A kind of functions that slices are made of. */
export interface FunctionKind {
  name: string;
  summary: string;
  cpus: number;
  memory_mb: number;
  most_replicas: number;
}

export interface FunctionOfSlice {
  name: string;
  function: string;
  networks: { network: string; address?: string | null }[];
  settings: Record<string, unknown>;
  replicas: number;
  /** Rises each time that it is healed. */
  generation: number;
}

export interface ContainerState {
  /** The function's name, a point, and which of its replicas it is. */
  name: string;
  state: string;
  health: "healthy" | "unhealthy" | "starting" | "none";
}

export interface Slice {
  name: string;
  tenant: string;
  site: string;
  revision: number;
  networks: { name: string; attachment?: string | null }[];
  functions: FunctionOfSlice[];
  state: "waiting" | "running" | "degraded" | "failed" | "ending";
  reported?: string | null;
  detail?: string | null;
  containers: ContainerState[];
}

/** An event of `/v1/events`: its kind, and its data as it came. */
export interface ServerEvent {
  kind: string;
  data: Record<string, unknown>;
}

export type Role = "viewer" | "operator" | "administrator" | "gateway" | "terminal" | "agent";

/** Who asks. */
export interface Session {
  kind: "token" | "user";
  name: string;
  role: Role;
  tenant?: string | null;
  csrf_token?: string | null;
  /** The provider that the user signs in by, if not by password. */
  issuer?: string | null;
}

export interface User {
  name: string;
  role: Role;
  tenant?: string | null;
  created: string;
  issuer?: string | null;
  /** The revision that a change or removal has to send. */
  revision: number;
}

export interface Token {
  id: number;
  name: string;
  role: Role;
  tenant?: string | null;
  node?: number | null;
  created: string;
  expires?: string | null;
  revoked?: string | null;
}

export interface Tenant {
  id: string;
  name: string;
}

/** A permission for a node to enrol, by a token that is shown once. */
export interface Enrolment {
  id: number;
  node: number;
  created: string;
  expires: string;
  revoked?: string | null;
  used?: string | null;
}

export interface AuditEntry {
  id: number;
  time: string;
  actor_kind: "token" | "user" | "command line" | "enrolment" | "node" | "rollout";
  actor: string;
  address: string;
  tenant?: string | null;
  action: string;
  target: string;
  before?: Record<string, unknown> | null;
  after?: Record<string, unknown> | null;
}
