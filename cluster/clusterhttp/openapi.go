package clusterhttp

import (
	_ "embed"
	"net/http"
)

// openAPI describes the endpoints for programs that make clients, in the form of
// OpenAPI 3.1. It is made from the types of api.go by a test, which holds the
// endpoints' answers against it, too.
//
//go:embed openapi.json
var openAPI []byte

func (a *api) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}
