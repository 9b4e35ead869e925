/** Processes items in order, a few at a time. */
export async function inTurn<T>(things: readonly T[], atOnce: number, work: (one: T) => Promise<void>): Promise<void> {
  const left = [...things];
  const next = async (): Promise<void> => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) await work(one);
  };
  await Promise.all(Array.from({ length: atOnce }, next));
}
