import type { AlertKind, AlertRule } from "../api/types";
import { counted } from "../shell/counted";

/** A kind of rule: when it fires, and the field for its limit. */
export interface KindText {
  when: string;
  field: { name: "limit_s" | "version"; label: string; /** Seconds in a unit of the field. */ unit_s: number };
}

const DAY_S = 86_400;
const LIMIT = { name: "limit_s", label: "Limit, s", unit_s: 1 } as const;

export const KINDS: Record<AlertKind, KindText> = {
  unheard: { when: "a terminal is not heard for longer than the limit", field: LIMIT },
  "link-down": { when: "a link is lost for longer than predicted, by the limit", field: LIMIT },
  debt: { when: "a terminal owes more than its link carries in the limit", field: LIMIT },
  certificate: {
    when: "a terminal's certificate ends within the limit",
    field: { name: "limit_s", label: "Limit, days", unit_s: DAY_S },
  },
  version: {
    when: "a terminal runs another version than the given one",
    field: { name: "version", label: "Version", unit_s: 1 },
  },
};

/** The request for a new rule, from a form's fields. */
export function ruleOf(fields: Record<string, string>): Record<string, string | number> {
  const { limit, version, for_s, keep_firing_for_s, ...rest } = fields;
  const body: Record<string, string | number> = { ...rest };
  const { field } = KINDS[rest.kind as AlertKind];
  if (field.name === "version") body.version = version ?? "";
  else body.limit_s = Number(limit) * field.unit_s;
  if (for_s !== undefined) body.for_s = Number(for_s);
  if (keep_firing_for_s !== undefined) body.keep_firing_for_s = Number(keep_firing_for_s);
  return body;
}

function limitText(limit: number, unit_s: number): string {
  return unit_s === 1 ? `${limit} s` : counted(limit, "day");
}

/** A rule in words. */
export function ruleText(rule: AlertRule): string {
  const { when, field } = KINDS[rule.kind];
  const about = field.name === "version" ? `${rule.version}` : limitText((rule.limit_s ?? 0) / field.unit_s, field.unit_s);
  const where = rule.beam ? `beam ${rule.beam}` : "all beams";
  return `${when}, ${about}, ${where}; fires after ${rule.for_s} s, is resolved after ${rule.keep_firing_for_s} s`;
}
