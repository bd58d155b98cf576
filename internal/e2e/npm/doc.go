// Package npm tests what programs in JavaScript and TypeScript get: the OpenAPI description, with a linter and a client
// generator, and the npm packages of a release.
package npm
