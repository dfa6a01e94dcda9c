// E-10: a protected event comes only from its authenticated author.
import assert from 'node:assert/strict'
import { connect, leave, person, refused, stored } from './support.mjs'

const [alice, mallory] = [person(), person()]
const mine = alice.note('mine', [['-']])
for (const [who, answer] of [
  [mallory, /^restricted: /],
  [alice, null],
]) {
  const relay = await connect()
  await refused(relay, mine, /^auth-required: /)
  // The challenge has come by now: it is the first thing the relay says.
  assert.equal(await relay.auth(async template => who.sign(template)), '')
  if (answer) await refused(relay, mine, answer)
  else assert.equal(await relay.publish(mine), '')
}
assert.deepEqual(await stored(await connect(), { authors: [alice.key] }), [mine.id])
leave()
