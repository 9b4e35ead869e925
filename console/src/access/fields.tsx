import type { Tenant } from "../api/types";
import { useListed } from "./listed";

export function RoleField({ roles }: { roles: readonly string[] }) {
  return (
    <label>
      Role{" "}
      <select name="role">
        {roles.map((role) => (
          <option key={role}>{role}</option>
        ))}
      </select>
    </label>
  );
}

/** Of the whole, or one of the tenants that there are. */
export function TenantField() {
  const { entries } = useListed<Tenant>("v1/tenants", "tenants");
  return (
    <label>
      Tenant{" "}
      <select name="tenant">
        <option value="">all vehicles</option>
        {entries?.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
