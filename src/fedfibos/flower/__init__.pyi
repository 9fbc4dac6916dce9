"""The names of the room, and where each lives."""

from .client_app import client_app as client_app
from .server_app import server_app as server_app
from .serving import serve as serve
from .strategy import SubmodelStrategy as SubmodelStrategy
from .task import FleetTask as FleetTask
from .task import task_of as task_of
