import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getShape, isJson, postShape } from '../../../src/downstream/admission/accept.ts';

const posts = [
  { accept: undefined, shape: 'any' },
  { accept: '', shape: 'any' },
  { accept: 'application/json, text/event-stream', shape: 'any' },
  { accept: 'text/event-stream;q=0.5,APPLICATION/JSON', shape: 'any' },
  { accept: '*/*', shape: 'any' },
  { accept: 'application/*, text/*', shape: 'any' },
  { accept: 'application/json', shape: 'json' },
  { accept: 'application/json; charset=utf-8', shape: 'json' },
  { accept: 'application/json, text/event-stream;q=0', shape: 'json' },
  { accept: 'text/event-stream', shape: 'events' },
  { accept: 'text/event-stream, application/json; q=0.0', shape: 'events' },
  { accept: 'text/html', shape: undefined },
  { accept: 'application/jsonx', shape: undefined },
  { accept: 'text/plain, image/*', shape: undefined },
];

for (const { accept, shape } of posts) {
  test(`a POST with Accept ${accept ?? 'absent'} gets ${shape ?? '406'}`, () => {
    assert.equal(postShape(accept), shape);
  });
}

const gets = [
  { accept: undefined, shape: 'events' },
  { accept: '*/*', shape: 'events' },
  { accept: 'text/event-stream', shape: 'events' },
  { accept: 'text/html, text/event-stream', shape: 'events' },
  { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', shape: 'hint' },
  { accept: 'application/json', shape: 'nothing' },
];

for (const { accept, shape } of gets) {
  test(`T-024 a GET with Accept ${accept ?? 'absent'} requests ${shape}`, () => {
    assert.equal(getShape(accept), shape);
  });
}

const types = [
  { type: undefined, is: false },
  { type: 'application/json', is: true },
  { type: 'Application/JSON; charset=UTF-8', is: true },
  { type: 'application/json;charset="utf-8"', is: true },
  { type: 'application/json; charset=latin1', is: false },
  { type: 'application/json; profile=x', is: true },
  { type: 'text/plain', is: false },
  { type: 'application/x-www-form-urlencoded', is: false },
  { type: 'text/plain; application/json', is: false },
  { type: 'application/json-rpc', is: false },
  { type: 'application/json, text/plain', is: false },
];

for (const { type, is } of types) {
  test(`SEC-17 ${type ?? 'no content type'} is ${is ? '' : 'not '}JSON`, () => {
    assert.equal(isJson(type), is);
  });
}
