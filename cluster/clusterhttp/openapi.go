package clusterhttp

import (
	_ "embed"
	"net/http"
)

// openAPI describes the endpoints in OpenAPI 3.1, for generators of clients. A test
// generates it from the types of api.go; internal/e2e checks responses against it.
//
//go:embed openapi.json
var openAPI []byte

func (a *api) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}
