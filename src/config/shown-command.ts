/** Returns the part of a command that operators may see: its first word. People write the arguments after it, and they may hold secrets. */
export function shownCommand(command: string): string {
  const [first = '', ...rest] = command.trim().split(/\s+/);
  return rest.length === 0 ? command : `${first} …`;
}
