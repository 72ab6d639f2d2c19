import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getForm, isJson, postForm } from '../../../src/downstream/admission/accept.ts';
import { shortened } from '../../support/test-name.ts';

const posts = [
  { accept: undefined, form: 'any' },
  { accept: '', form: 'any' },
  { accept: 'application/json, text/event-stream', form: 'any' },
  { accept: 'text/event-stream;q=0.5,APPLICATION/JSON', form: 'any' },
  { accept: '*/*', form: 'any' },
  { accept: 'application/*, text/*', form: 'any' },
  { accept: 'application/json', form: 'json' },
  { accept: 'application/json; charset=utf-8', form: 'json' },
  { accept: 'application/json, text/event-stream;q=0', form: 'json' },
  { accept: 'text/event-stream', form: 'events' },
  { accept: 'text/event-stream, application/json; q=0.0', form: 'events' },
  { accept: 'text/html', form: undefined },
  { accept: 'application/jsonx', form: undefined },
  { accept: 'text/plain, image/*', form: undefined },
];

for (const { accept, form } of posts) {
  test(`a POST with Accept ${accept ?? 'absent'} gets ${form ?? '406'}`, () => {
    assert.equal(postForm(accept), form);
  });
}

const gets = [
  { accept: undefined, form: 'events' },
  { accept: '*/*', form: 'events' },
  { accept: 'text/event-stream', form: 'events' },
  { accept: 'text/html, text/event-stream', form: 'events' },
  { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', form: 'hint' },
  { accept: 'application/json', form: 'nothing' },
];

for (const { accept, form } of gets) {
  // T-024
  test(`a GET with Accept ${shortened(accept ?? 'absent', 40)} requests ${form}`, () => {
    assert.equal(getForm(accept), form);
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
  // SEC-17
  test(`${type ?? 'no content type'} is ${is ? '' : 'not '}JSON`, () => {
    assert.equal(isJson(type), is);
  });
}
