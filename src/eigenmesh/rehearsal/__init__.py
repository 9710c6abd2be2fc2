"""Runs in virtual time under given conditions: sites with their network and disks, or the nodes of a fit."""

from eigenmesh.rehearsal.conditions import Conditions, read_conditions
