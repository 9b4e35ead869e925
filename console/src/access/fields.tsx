import type { Tenant } from "../api/types";

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

/** Chooses the whole system or a tenant; a form waits until the tenants are known. */
export function TenantField({ of: tenants }: { of: readonly Tenant[] | undefined }) {
  return (
    <label>
      Tenant{" "}
      <select name="tenant">
        <option value="">all vehicles</option>
        {tenants?.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
