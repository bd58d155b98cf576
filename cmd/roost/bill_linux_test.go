package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// bill has what the test reads of an SPDX document.
type bill struct {
	Version     string `json:"spdxVersion"`
	DataLicense string `json:"dataLicense"`
	ID          string `json:"SPDXID"`
	Name        string `json:"name"`
	Namespace   string `json:"documentNamespace"`
	Creation    struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	} `json:"creationInfo"`
	Packages []struct {
		ID        string `json:"SPDXID"`
		Name      string `json:"name"`
		Version   string `json:"versionInfo"`
		File      string `json:"packageFileName"`
		Location  string `json:"downloadLocation"`
		Source    string `json:"sourceInfo"`
		License   string `json:"licenseDeclared"`
		Checksums []struct {
			Algorithm string `json:"algorithm"`
			Value     string `json:"checksumValue"`
		} `json:"checksums"`
		References []struct {
			Locator string `json:"referenceLocator"`
		} `json:"externalRefs"`
	} `json:"packages"`
	Relationships []struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	} `json:"relationships"`
}

// checkBill: the bill of materials is complete SPDX, and has each module of the binary, as go version states it.
func checkBill(t *testing.T, r released) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "roost_v0.98.7.spdx.json"))
	var b bill
	if err := errors.Join(err, json.Unmarshal(text, &b)); err != nil {
		t.Fatal(err)
	}
	if b.Version != "SPDX-2.3" || b.DataLicense != "CC0-1.0" || b.ID != "SPDXRef-DOCUMENT" || b.Name != "roost-v0.98.7" ||
		!strings.HasSuffix(b.Namespace, "/v0.98.7/"+r.commit) || b.Creation.Created != "2001-02-03T04:05:06Z" || len(b.Creation.Creators) != 1 {
		t.Errorf("the bill begins with %.600s", text)
	}

	ids, modules := map[string]bool{b.ID: true}, make(map[string]string)
	for _, p := range b.Packages {
		if ids[p.ID] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) {
			t.Errorf("the id %q is not valid, or not unique", p.ID)
		}
		ids[p.ID] = true
		if p.Location == "" || p.License == "" || len(p.References) != 1 || p.References[0].Locator != "pkg:golang/"+p.Name+"@"+p.Version {
			t.Errorf("incomplete: %+v", p)
		}
		if p.File == "" {
			modules[p.Name+" "+p.Version+" "+strings.TrimPrefix(p.Source, "go.sum ")] = p.License
			continue
		}
		sums, err := os.ReadFile(filepath.Join(r.dir, "SHA256SUMS"))
		if err != nil || len(p.Checksums) != 1 || p.Checksums[0].Algorithm != "SHA256" ||
			!strings.Contains("\n"+string(sums), "\n"+p.Checksums[0].Value+"  "+p.File+"\n") {
			t.Errorf("SHA256SUMS does not have %s with %v: %v", p.File, p.Checksums, err)
		}
	}
	related := make(map[string]bool)
	for _, rel := range b.Relationships {
		if !ids[rel.From] || !ids[rel.To] {
			t.Errorf("%+v is between ids that do not exist", rel)
		}
		related[rel.To] = true
	}
	if len(related) != len(b.Packages) {
		t.Errorf("%d packages are in a relationship, want all %d", len(related), len(b.Packages))
	}

	out, err := exec.Command("go", "version", "-m", filepath.Join(r.unpacked, "roost")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"stdlib " + strings.TrimPrefix(runtime.Version(), "go") + " ": true}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)\t(\S+)$`).FindAllStringSubmatch(string(out), -1) {
		want[strings.Join(m[1:], " ")] = true
	}
	for m := range want {
		if modules[m] == "" {
			t.Errorf("the bill does not have %s", m)
		}
	}
	if len(want) != len(modules) || len(want) < 20 {
		t.Errorf("the bill has %d modules, want %d", len(modules), len(want))
	}
	for prefix, license := range map[string]string{
		"stdlib ": "BSD-3-Clause", "github.com/hashicorp/memberlist ": "MPL-2.0", "github.com/spf13/cobra ": "Apache-2.0",
		"github.com/vmihailenco/msgpack/v5 ": "BSD-2-Clause", "go.yaml.in/yaml/v3 ": "Apache-2.0 AND MIT",
	} {
		for m, got := range modules {
			if strings.HasPrefix(m, prefix) && got != license {
				t.Errorf("the license of %s is %s, want %s", m, got, license)
			}
		}
	}
}
