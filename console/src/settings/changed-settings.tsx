import type { SettingsChange } from "../api/types";
import { Table } from "../shell/table";
import { changeTexts } from "./rollout-text";

interface Props {
  label: string;
  changes: readonly SettingsChange[];
}

/** The settings that a change would change, now and then. */
export function ChangedSettings({ label, changes }: Props) {
  return (
    <Table label={label} columns={["Setting", "Now", "Then"]}>
      {changes.map((one) => {
        const [key, now, then] = changeTexts(one);
        return (
          <tr key={key}>
            <th scope="row">{key}</th>
            <td>{now}</td>
            <td>{then}</td>
          </tr>
        );
      })}
    </Table>
  );
}
