/**
 * Preloaded into the suite. Its scripted servers listen on every interface; with this they stay on 127.0.0.1.
 *
 * `listen(0)` binds at once, and `listen(0, '127.0.0.1')` a tick later. The suite reads `address()` at once, so
 * this uses the internal function that binds at once.
 */
import { Server, type ListenOptions } from 'node:net';

const LOOPBACK = '127.0.0.1';
const IPV4 = 4;

type Bind = (this: Server, address: string, port: number, family: number, backlog: number) => void;

function isBind(value: unknown): value is Bind {
  return typeof value === 'function';
}

function isPort(value: unknown): value is number | string {
  return typeof value === 'number' || (typeof value === 'string' && /^\d+$/.test(value));
}

function isOptions(value: unknown): value is ListenOptions {
  return typeof value === 'object' && value !== null;
}

// oxlint-disable-next-line typescript/unbound-method -- called with its server below
const original = Server.prototype.listen;

Server.prototype.listen = function listen(this: Server, ...args: unknown[]): Server {
  const [first] = args;
  const port = isOptions(first) ? first.port : (first ?? 0);
  if (!isPort(port)) return Reflect.apply(original, this, args);
  const bind: unknown = Reflect.get(this, '_listen2');
  if (!isBind(bind)) throw new Error('this Node cannot be held to 127.0.0.1');
  const callback = args.findLast((argument) => typeof argument === 'function');
  if (callback !== undefined) this.once('listening', () => void Reflect.apply(callback, this, []));
  bind.call(this, LOOPBACK, Number(port), IPV4, 511);
  return this;
};
