/** One event of a stream. `data` joins its data lines. */
export interface Event {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: string;
}

/** Parses the text of an event stream into events, as the HTML standard defines it. */
export class EventReader {
  #rest = '';
  readonly #found: (event: Event) => void;

  constructor(found: (event: Event) => void) {
    this.#found = found;
  }

  push(text: string): void {
    this.#rest += text.replaceAll('\r\n', '\n');
    let end = this.#rest.indexOf('\n\n');
    while (end >= 0) {
      this.#read(this.#rest.slice(0, end));
      this.#rest = this.#rest.slice(end + 2);
      end = this.#rest.indexOf('\n\n');
    }
  }

  #read(block: string): void {
    let id: string | undefined;
    let event = 'message';
    const data: string[] = [];
    for (const line of block.split('\n')) {
      const colon = line.indexOf(':');
      const [name, value] = colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')];
      if (name === 'id') id = value;
      else if (name === 'event') event = value;
      else if (name === 'data') data.push(value);
    }
    if (data.length > 0 || id !== undefined) this.#found({ id, event, data: data.join('\n') });
  }
}

export function eventText({ id, event, data }: { id?: string; event?: string; data: string }): string {
  return `${id === undefined ? '' : `id: ${id}\n`}${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`;
}
