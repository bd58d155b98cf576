package clusterhttp

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
)

// keyPrint is a fingerprint of cluster.KeyFingerprint.
var keyPrint = regexp.MustCompile(`^[0-9a-f]{8}$`)

// changeKeys makes one step of a change of the gossip key, on this node alone. A key comes in with install and never goes out.
func (a *api) changeKeys(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
	var body struct {
		Install string `json:"install"` // base64
		Use     string `json:"use"`     // fingerprints
		Remove  string `json:"remove"`
	}
	if !a.guard.guardChanges && !certified(r) { // any process on this machine may call
		return nil, problem(http.StatusForbidden, CodeForbidden, "gossip keys are changed by callers that prove themselves alone: give the agent a token (--http-token-file)")
	}
	if p := decode(r, &body); p != nil {
		return nil, p
	}
	given := 0
	for _, v := range []string{body.Install, body.Use, body.Remove} {
		if v != "" {
			given++
		}
	}
	if given != 1 {
		return nil, badRequest(`send one of {"install":KEY}, {"use":FINGERPRINT} and {"remove":FINGERPRINT}`)
	}
	if print := body.Use + body.Remove; print != "" && !keyPrint.MatchString(print) {
		return nil, badRequest("the fingerprint of a key has 8 hexadecimal digits, as in keys of /v1/members")
	}
	key, err := base64.StdEncoding.DecodeString(body.Install)
	if err != nil || body.Install != "" && len(key) != 16 && len(key) != 24 && len(key) != 32 {
		return nil, badRequest("install must be a key of 16, 24 or 32 bytes in base64")
	}
	a.audit(r)
	before := a.agent.KeyFingerprints()
	switch {
	case body.Use != "":
		err = a.agent.UseKey(body.Use)
	case body.Remove != "":
		err = a.agent.RemoveKey(body.Remove)
	default:
		err = a.agent.InstallKey(key)
	}
	if err != nil {
		return nil, a.problemOf(err)
	}
	k := &Keys{Self: a.self, Keys: a.agent.KeyFingerprints(), Unsaved: a.unsaved()}
	if !slices.Equal(before, k.Keys) {
		a.log.Info("gossip keys changed by a call", "sends_with", k.Keys[0], "accepts", k.Keys[1:])
	}
	if k.Unsaved != "" {
		a.log.Warn("gossip keys are not saved", "why", k.Unsaved)
	}
	return k, nil
}

// unsaved keeps the gossip keys for the next start, or returns why it could not.
func (a *api) unsaved() string {
	if a.saveKeys == nil {
		return "this program does not keep keys that are changed by a call"
	}
	if err := a.saveKeys(); err != nil {
		return err.Error()
	}
	return ""
}

// certified reports whether the client has shown a certificate of a CA that the server trusts for clients.
func certified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }
