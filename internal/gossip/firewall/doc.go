// Package firewall contains the rules that filter traffic between the network and memberlist. memberlist
// trusts what it receives, so any peer that can reach its port can make it use memory, send packets or panic.
// Each file contains one rule. The comment at its top describes what a hostile or faulty peer could do to
// memberlist without the rule, and how memberlist would have to change so that the rule can be removed.
//
// [Firewall] applies the rules. Package gossip runs its own protocols in front of memberlist's, through [Config].
package firewall
