import { openStream, type Place, postBody } from '../wire.ts';

const LONGEST_MS = 30_000;

/** The text of a stream, as far as it is read. */
class StreamText {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  #text = '';

  constructor(body: ReadableStream<Uint8Array>) {
    this.#reader = body.getReader();
  }

  /** Reads until a pattern matches. @throws {Error} if the stream ends. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.#text);
      if (match !== null) return match;
      const { value, done } = await this.#reader.read();
      if (done) throw new Error('the stream has ended');
      this.#text += this.#decoder.decode(value, { stream: true });
    }
  }
}

/** Opens a session of 2024-11-05, makes one call, and leaves. Returns the line with its answer. @throws {Error} */
export async function oldSession(place: Place, call: object, stopped: AbortSignal): Promise<string> {
  const ended = new AbortController();
  const signal = AbortSignal.any([stopped, ended.signal, AbortSignal.timeout(LONGEST_MS)]);
  try {
    const response = await openStream(place, undefined, signal);
    if (response.status !== 200 || response.body === null) throw new Error(`GET /sse: ${response.status}`);
    const stream = new StreamText(response.body);
    const [, path = ''] = await stream.until(/event: endpoint\ndata: (\S+)/);
    const endpoint = { ...place, url: new URL(path, place.url).href };
    const post = async (message: object) => {
      const posted = await postBody(endpoint, { jsonrpc: '2.0', ...message }, {}, signal);
      const text = await posted.text();
      if (posted.status !== 202) throw new Error(`POST of 2024-11-05: ${posted.status} ${text.slice(0, 200)}`);
    };
    const clientInfo = { name: 'soak', version: '1.0.0' };
    const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo };
    await post({ id: 'hello', method: 'initialize', params });
    await stream.until(/"id":"hello"/);
    await post({ method: 'notifications/initialized' });
    await post({ id: 'call', method: 'tools/call', params: call });
    const [line] = await stream.until(/^data: .*"id":"call".*$/m);
    return line;
  } finally {
    ended.abort();
  }
}
