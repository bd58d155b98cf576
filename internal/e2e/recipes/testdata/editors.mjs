// editors.mjs URL DOCUMENT: a and b edit a document over connections of their own. a types what time it is; b prints it.
import WebSocket from 'ws';
import { WebsocketProvider } from 'y-websocket';
import * as Y from 'yjs';

const [url, name] = process.argv.slice(2);

function editor(who) {
  const doc = new Y.Doc();
  const server = new WebsocketProvider(url, name, doc, { WebSocketPolyfill: WebSocket, disableBc: true });
  server.on('connection-close', (event) => event && console.log(`${who} closed ${event.code}`));
  return doc.getMap('minutes');
}

const a = editor('a'), b = editor('b');
b.observe(() => console.log(`seen ${b.get('time')}`));
setInterval(() => a.set('time', Date.now()), 20);
