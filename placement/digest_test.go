package placement

import (
	"encoding/json"
	"testing"
)

func TestDigestText(t *testing.T) {
	for _, d := range []Digest{0, 1, 0xa6f3d38300000000, 1<<64 - 1} {
		b, err := json.Marshal(d)
		if err != nil || len(b) != 18 {
			t.Fatalf("%v encodes as %s, %v", d, b, err)
		}
		var back Digest
		if err := json.Unmarshal(b, &back); err != nil || back != d {
			t.Errorf("%s decodes as %v, %v", b, back, err)
		}
	}
	for _, bad := range []string{`""`, `"1"`, `"00000000000000001"`, `"000000000000000g"`, `"-00000000000001f"`, `7`} {
		var d Digest
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s decodes as %v", bad, d)
		}
	}
}
